"""The page needs no other file, escapes the texts of runs, and shows what the document contains."""

import json
import re
from datetime import UTC, datetime
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_digests import (
    make_decentralised_digest,
    make_heterogeneous_digest,
    make_paper_grid,
    make_paper_sweep,
    make_test_digest,
)

from fedcm.reports.claims.headline import write_headline
from fedcm.reports.claims.paper import PaperFigure, read_paper_figures
from fedcm.reports.digest import Diagnoses, Digest, OtherCell, SiteResults
from fedcm.reports.document import build_document
from fedcm.reports.html.page import render_page
from fedcm.reports.write import write_figures_and_tables
from fedcm.sweeps.grid import expand_grid
from fedcm.sweeps.paper_grids import list_grid_files

SCRIPT = "<script>alert('x')</script>\"'&</td>"


def render(*runs: Digest, stamp: str | None = None) -> str:
    """Return the page without plotly.js."""
    whole_page = render_page(build_document(runs, [], datetime(2026, 1, 1, tzinfo=UTC)), stamp)
    return re.sub(r"<script>/\*\*\n\* plotly.*?</script>", "", whole_page, flags=re.DOTALL)


def read_data(html: str) -> dict[str, object]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert match
    return json.loads(match.group(1))


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_page_refers_to_no_other_file() -> None:
    html = render(make_test_digest(), make_test_digest("fedavg"))
    assert Tags(html).addresses == ["data:,"]
    assert "@import" not in html
    assert "url(" not in html


def test_texts_of_runs_are_escaped() -> None:
    plain, escaped = (
        render(
            make_test_digest(name=text, labels={text: text}, experiment=text, options={"note": text}, source=text),
            make_test_digest("fedavg"),
        )
        for text in ("a", SCRIPT)
    )
    assert SCRIPT not in escaped
    assert Tags(escaped).names == Tags(plain).names
    assert SCRIPT in str(read_data(escaped)["cells"]).replace("\\'", "'")


def test_table_has_the_runs_numbers_and_the_published_ones() -> None:
    html = render(
        make_test_digest(accuracy=0.8, published=81.25),
        make_test_digest(accuracy=0.9, seed=2),
        make_test_digest("fedavg", 0.5),
    )
    text = re.sub(r"<[^>]+>", " ", html)
    assert re.search(r"85\.00\s+± 7\.07", text)
    assert "81.25" in text
    assert re.search(r"<b>85\.00</b>", html)
    assert "FedCM has the highest test accuracy in this table (one side has one seed): 85.00 ± 7.07 %" in text


def test_tables_have_captions_and_headings() -> None:
    html = render(*make_paper_grid())
    assert html.count("<table") == html.count("<caption") + 1  # the numbers of the curves are filled in by the script
    assert not re.search(r"<th(?![^>]*scope)(?!ead)", html)
    assert len(re.findall(r"<h1", html)) == 1


def test_page_without_an_evaluation_says_so() -> None:
    html = render(make_test_digest(accuracy=None))
    assert "Nothing has been evaluated yet" in html


def test_only_a_live_page_has_a_stamp() -> None:
    assert read_data(render(make_test_digest()))["stamp"] is None
    assert read_data(render(make_test_digest(), stamp="7"))["stamp"] == "7"


def test_headline_is_one_sentence() -> None:
    (group,) = build_document(make_paper_grid(), [], datetime.now(UTC)).groups
    assert write_headline(group) == "Highest test accuracy in this table (one seed): FedCM in all 4 cells."


def test_figures_and_tables_are_written(tmp_path: Path) -> None:
    write_figures_and_tables(build_document([*make_paper_grid(), *make_paper_sweep()], [], datetime.now(UTC)), tmp_path)
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert figures[:2] == ["digits-mlp-accuracy.pdf", "digits-mlp-accuracy.png"]
    assert all(path.stat().st_size > 1000 for path in (tmp_path / "figures").iterdir())
    suffixes = {path.suffix for path in (tmp_path / "tables").iterdir()}
    assert suffixes == {".tex", ".md", ".csv"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "has_claims"),
    [
        (make_test_digest(published=87.61, source="cifar10"), True),
        (make_test_digest("fedavg", published=82.14, source="cifar10"), True),
        (make_test_digest(source="cifar10", other_cells=[OtherCell(labels={"alpha": "0.1"}, published=87.61)]), True),
        (make_test_digest(), False),  # no published figure
        (make_test_digest(published=50.0, source="cifar10"), False),  # not a figure of the paper
        (make_test_digest(published=87.61), False),  # another dataset
        (make_test_digest("scaffold", published=87.61, source="cifar10"), False),  # another algorithm
    ],
)
def test_claims_are_shown_only_with_the_papers_figures(run: Digest, has_claims: bool, tmp_path: Path) -> None:
    assert ('id="claims"' in render(run, make_test_digest("feddyn"))) == has_claims
    write_figures_and_tables(build_document([run], [], datetime.now(UTC)), tmp_path)
    assert (tmp_path / "tables" / "claims.csv").exists() == has_claims


def test_paper_figures_are_those_of_the_experiment_files() -> None:
    runs = [run for path in list_grid_files("figures", "full") for run in expand_grid(path)]
    expected = {
        PaperFigure(
            run.experiment.cell.published or 0.0,
            type(run.experiment.algorithm).__name__.lower(),
            run.experiment.data.source,
            run.experiment.split.clients,  # pyright: ignore[reportAttributeAccessIssue]
            run.experiment.model.name,
            run.experiment.rounds,
        )
        for run in runs
    }
    assert set(read_paper_figures()) == expected
    assert len(read_paper_figures()) == 46  # five algorithms in eight cells, and six values of α


def test_diagnoses_follow_the_curves() -> None:
    values = {"momentum_cosine": [0.125, 0.5], "drift": [1e-3, None], "unknown": [1.0, 2.0]}
    watched = make_test_digest(name="watched", diagnoses=Diagnoses(round=[10, 20], values=values))
    text = render(watched, make_test_digest("fedavg"))
    assert "Drift, noise and momentum" in text
    assert text.index('id="curves"') < text.index('id="diagnosis"') < text.index('id="costs"')
    assert "Does the momentum point uphill?" in text
    assert "0.125" in text
    section = text[text.index('id="diagnosis"') : text.index('id="costs"')]
    assert section.index("Test accuracy") < section.index("Does the momentum"), "the curve itself comes first"
    assert "Does the control variate point uphill?" not in text, "no run has one"
    assert 'id="diagnosis"' not in render(make_test_digest())


def test_agreement_of_nodes_is_shown_for_decentralised_runs_only() -> None:
    text = render(make_test_digest(), make_decentralised_digest(name="on-a-ring", curve=[0.5, 0.6]))
    assert text.index('id="curves"') < text.index('id="agreement"') < text.index('id="costs"')
    section = text[text.index('id="agreement"') : text.index('id="costs"')]
    assert "Agreement of the nodes" in section
    assert "on-a-ring" in section
    assert "made-fedcm-seed1" not in section
    assert "<td>0.25</td>" in section
    assert 'id="agreement"' not in render(make_test_digest())
    (plot,) = read_data(text)["agreement"]  # pyright: ignore[reportGeneralTypeIssues]
    assert plot["log"]
    assert [(line["round"], line["value"]) for line in plot["lines"]] == [([1, 2], [0.5, 0.25])]


def test_system_is_shown_for_heterogeneous_runs_only() -> None:
    text = render(make_test_digest("fedavg"), make_heterogeneous_digest(name="slow", curve=[0.5, 0.6]))
    assert text.index('id="curves"') < text.index('id="system"') < text.index('id="costs"')
    section = text[text.index('id="system"') : text.index('id="costs"')]
    assert "slow" in section
    assert "made-fedavg-seed1" not in section
    assert 'id="system"' not in render(make_test_digest())
    time, *plots, histogram = read_data(text)["system"]  # pyright: ignore[reportGeneralTypeIssues]
    heights = {centre: times for centre, times in histogram["bins"] if times}
    assert heights == {1: 8, 4: 2, 9: 4}
    assert "Distribution of local steps, slow" in section
    assert time["x"] == "simulated seconds"
    assert [(line["round"], line["value"]) for line in time["lines"]] == [([12.0, 24.0], [50.0, 60.0])]
    assert [plot["lines"][0]["value"] for plot in plots] == [[value] * 2 for value in (25.0, 2.5, 4.5, 1.0, 9.0)]


def make_sites(**shares: float | None) -> list[SiteResults]:
    return [
        SiteResults(site=site, counted=9, missed=1, shortened=2, mean_share=share, largest_share=share)
        for site, share in shares.items()
    ]


def test_sites_are_in_the_system_section_with_the_largest_share_first() -> None:
    first = make_test_digest(name="first", sites=make_sites(a=0.25, b=None, c=0.625, d=0.0))
    second = make_test_digest("fedavg", name="second", sites=make_sites(e=0.5, f=0.5))
    text = render(first, second, make_test_digest("scaffold", name="plain"))
    section = text[text.index('id="system"') : text.index('id="costs"')]
    assert re.findall(r"<caption>(Sites of .*?)</caption>", section) == ["Sites of first", "Sites of second"]
    assert re.findall(r'<th scope="row">(.)</th>', section) == ["c", "a", "d", "b", "e", "f"]
    assert section.count("A share is the distance by which a site") == 1
    assert "Sites of" not in render(make_test_digest())


def test_names_of_sites_are_escaped(tmp_path: Path) -> None:
    plain, hostile = (make_test_digest(sites=make_sites(**{name: 0.5, "b": 0.25})) for name in ("a", SCRIPT))
    html = render(hostile)
    assert SCRIPT not in html
    assert Tags(html).names == Tags(render(plain)).names
    assert html.count(f'<th scope="row">{escape(SCRIPT)}</th>') == 1
    write_figures_and_tables(build_document([hostile], [], datetime.now(UTC)), tmp_path)
    (file,) = (tmp_path / "tables").glob("sites-*.md")
    assert "<" not in file.read_text().replace("\\<", "")


def test_curves_can_be_drawn_against_simulated_time() -> None:
    for runs, expected in (
        ([make_heterogeneous_digest(curve=[0.5, 0.6])], [12.0, 24.0]),
        ([make_test_digest(curve=[0.5, 0.6])], [None, None]),
    ):
        (cell,) = read_data(render(*runs))["cells"]  # pyright: ignore[reportGeneralTypeIssues]
        assert cell["rows"][0]["mean"]["simulated_seconds"] == expected


def test_distance_of_0_is_a_gap_on_the_logarithmic_axis() -> None:
    run = make_decentralised_digest(curve=[0.5, 0.6])
    curve = run.curve.model_copy(update={"consensus_distance": [0.0, 0.5]})
    html = render(run.model_copy(update={"curve": curve}))
    (plot,) = read_data(html)["agreement"]  # pyright: ignore[reportGeneralTypeIssues]
    assert plot["lines"][0]["value"] == [None, 0.5]


def test_table_of_runs_has_the_graph_of_decentralised_runs() -> None:
    random = make_decentralised_digest("qg-dsgdm", topology={"kind": "erdos-renyi", "probability": 0.3})
    html = render(make_test_digest(), make_decentralised_digest(), random)
    table = re.sub(r"<[^>]+>", " ", html.split('id="runs"')[1].split("All settings")[0])
    assert re.search(r"time\s+graph\s", table)
    assert re.search(r"made-d-sgd-seed1.*\sring\s.*made-qg-dsgdm-seed1.*\serdos-renyi 0.3\s", table, re.DOTALL)
    assert "topology" not in table
    assert "graph" not in render(make_test_digest()).split('id="runs"')[1].split("<script")[0]


def test_costs_say_that_bytes_without_a_server_are_those_between_neighbours() -> None:
    note = "without a server, the bytes between all neighbours"
    text = render(make_test_digest(), make_decentralised_digest())
    assert note in text
    assert note not in render(make_test_digest())
    costs = text[text.index('id="costs"') : text.index('id="participation"')]
    assert "0 B" not in costs
