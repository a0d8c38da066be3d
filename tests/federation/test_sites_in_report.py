"""From the lines that a federation's server writes to the digest, the page and the tables: one row per site."""

import json
import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hostile_sites import BY_EXAMPLES, HOSTILE, run_attacked
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from test_server import metrics, run_all, simulate

from fedcm.reports.collect import RunCollection
from fedcm.reports.digest import Digest, read_digest, write_digest
from fedcm.reports.document import build_document
from fedcm.reports.extraction import make_digest
from fedcm.reports.html.page import render_page
from fedcm.reports.write import write_report
from fedcm.runs.folder import RunFolder


def read_rows(digest: Digest) -> list[list[str]]:
    """Return the texts of the page's table of sites; empty if there is none."""
    html = render_page(build_document([digest], [], datetime.now(UTC)))
    table = re.search(rf"<table><caption>Sites of {re.escape(digest.name)}</caption>.*?</table>", html)
    rows = re.findall(r"<tr>(.*?)</tr>", table[0] if table else "")
    return [[unescape(text) for text in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def expect_site(lines: list[dict[str, Any]], site: str) -> dict[str, Any]:
    """Compute what a digest must say about a site that is compared in at least one round."""
    shares = [(line["influence"][site]["share"], line["round"] + 1) for line in lines if "influence" in line]
    largest = max(share for share, _ in shares)
    return {
        "site": site,
        "counted": sum(SITES.index(site) in line["clients"] for line in lines),
        "missed": sum(site in line["missed"] for line in lines),
        "shortened": sum(site in line.get("shortened", []) for line in lines),
        "mean_share": pytest.approx(fmean(share for share, _ in shares), rel=1e-5),
        "largest_share": largest,
        "largest_share_round": next(done for share, done in shares if share == largest),
        "lowest_cosine": min(line["influence"][site]["cosine"] for line in lines if "influence" in line),
    }


def test_a_flipped_site_is_in_the_digest_with_the_rounds_that_it_missed(tmp_path: Path) -> None:
    lines = run_attacked(tmp_path, "fedavg", "sign flipped", {}, 3)
    digest = make_digest(RunFolder(tmp_path / "server" / "runs" / "r"))
    assert [one.model_dump() for one in digest.sites] == [expect_site(lines, site) for site in SITES]
    assert [(one.counted, one.missed) for one in digest.sites] == [(3, 0), (0, 3), (3, 0)]
    assert digest.sites[1].lowest_cosine is not None
    assert digest.sites[1].lowest_cosine < -0.5 < min(digest.sites[k].lowest_cosine or 0.0 for k in (0, 2))
    write_digest(digest, tmp_path / "one.json")
    assert read_digest(tmp_path / "one.json") == digest


def test_the_page_and_the_tables_have_the_site_with_the_largest_share_first(tmp_path: Path) -> None:
    attack = "constant 1e3, examples overstated to 1e9"
    lines = run_attacked(tmp_path, "fedavg", attack, BY_EXAMPLES["defaults"], 2)
    run = tmp_path / "server" / "runs" / "r"
    (digest,) = RunCollection().read_digests([run])
    head, *rows = read_rows(digest)
    assert head[:4] == ["site", "rounds counted", "rounds missed", "rounds shortened"]
    assert head[4:] == ["mean share", "largest share", "in round", "lowest cosine"]
    hostile = expect_site(lines, HOSTILE)
    share, cosine = f"{hostile['largest_share']:.2f}", f"{hostile['lowest_cosine']:.2f}"
    mean = fmean(line["influence"][HOSTILE]["share"] for line in lines)
    assert rows[0] == [HOSTILE, "2", "0", "2", f"{mean:.2f}", share, str(hostile["largest_share_round"]), cosine]
    assert float(share) > 0.9
    write_report([run], tmp_path / "report")
    assert (tmp_path / "report" / "tables" / "sites-r.tex").exists()
    text = (tmp_path / "report" / "tables" / "sites-r.md").read_text()
    assert text.startswith("Sites of r. A share is the distance by which a site's report moves")
    assert [line.split(" | ")[0].strip("| ") for line in text.splitlines()[4:]] == [row[0] for row in rows]


def test_rounds_without_a_comparison_and_without_a_quorum_are_counted(tmp_path: Path) -> None:
    """In round 1 only two sites report, which is enough; in round 2 only one does, and the round changes nothing."""
    away = {1: {"c"}, 2: {"a", "c"}}
    chosen = make_experiment("fedavg", federation={"quorum": 0.6, "wait": 0})

    def leave(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        return None if site in away.get(fields["round"], ()) else (fields, arrays)

    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), leave), chosen)
    lines = metrics(run)
    assert [len(line.get("influence", {})) for line in lines] == [3, 0, 0, 3]
    assert [line["clients"] for line in lines] == [[0, 1, 2], [0, 1], [], [0, 1, 2]]
    digest = make_digest(RunFolder(run))
    assert [one.model_dump() for one in digest.sites] == [expect_site(lines, site) for site in SITES]
    assert [(one.counted, one.missed) for one in digest.sites] == [(3, 1), (3, 0), (2, 2)]


def test_a_simulation_has_no_sites(tmp_path: Path) -> None:
    simulate(make_experiment(), tmp_path)
    digest = make_digest(RunFolder(tmp_path / "simulated"))
    write_digest(digest, tmp_path / "one.json")
    assert digest.sites == []
    assert "sites" not in json.loads((tmp_path / "one.json").read_text())
    assert read_rows(digest) == []
    write_report([tmp_path / "simulated"], tmp_path / "report")
    assert not list((tmp_path / "report" / "tables").glob("sites*"))


@pytest.mark.parametrize(
    "tables",
    [
        {"federation": {"secure_aggregation": True}},
        {"federation": {"norm_ratio": 0.0, "min_cosine": -1.0}},
        {"privacy": {"noise_multiplier": 1.0, "clip": 0.5, "delta": 1e-3}, "client": {"steps": 2, "lr": 0.1}},
    ],
)
def test_a_federation_that_compares_no_reports_has_no_sites(tables: dict[str, Any], tmp_path: Path) -> None:
    chosen = make_experiment("fedavg", rounds=2, **tables)
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert make_digest(RunFolder(run)).sites == []
