"""A digest contains what the run's files contain, is small, and reads back unchanged."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_digests import make_decentralised_digest, make_heterogeneous_digest, make_test_digest
from scenes import Answer, forget_manifest, load_summary, run_and_stop_after, run_to_end
from torch import nn

import fedcm
from fedcm.errors import UserError
from fedcm.reports.digest import SYSTEM_COLUMNS, Diagnoses, SiteResults, read_digest, write_digest
from fedcm.reports.extraction import (
    count_participation,
    count_steps,
    extract_curve,
    extract_diagnoses,
    make_digest,
    summarise_sites,
)
from fedcm.reports.label_mixes import LabelMixFinder
from fedcm.runs.folder import RunFolder
from fedcm.system.hardware import describe_cpu

RESULTS = Path(__file__).parents[2] / "results"


def make_lines(rounds: int, every: int) -> list[dict[str, Any]]:
    tested = {k for k in range(rounds) if (k + 1) % every == 0}
    return [
        {"round": k, "cohort": 2, "clients": [k % 3, 7], "loss": 1.23456789 / (k + 1), "update_norm": 0.1234567}
        | {"bytes_down": 2_000_000, "bytes_up": 1_000_000, "seconds": 0.123456}
        | ({"test_accuracy": k / rounds / 3, "test_loss": 2.3456789 / (k + 1)} if k in tested else {})
        for k in range(rounds)
    ]


def test_digest_contains_what_the_runs_files_contain(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = run_to_end(experiment(cell={"labels": {"setting": "II"}, "published": 50.5}), tmp_path / "runs")
    digest = make_digest(RunFolder(path), LabelMixFinder())
    metrics = RunFolder(path).read_metrics()
    tested = [line for line in metrics if "test_accuracy" in line]
    assert digest.summary == load_summary(path)
    assert (digest.state, digest.labels, digest.published) == ("finished", {"setting": "II"}, 50.5)
    assert digest.curve.round == [line["round"] + 1 for line in tested]
    assert digest.curve.test_accuracy == pytest.approx([line["test_accuracy"] for line in tested], rel=1e-5)
    assert digest.curve.bytes_up[-1] == sum(line["bytes_up"] for line in metrics)
    assert digest.curve.seconds[-1] == pytest.approx(sum(line["seconds"] for line in metrics), abs=0.01)
    assert sum(times * clients for times, clients in digest.participation.times) == sum(x["cohort"] for x in metrics)
    assert sum(clients for _, clients in digest.participation.times) == 12
    assert digest.mix is not None
    assert sum(map(sum, digest.mix.shown)) == 240
    assert digest.cpu == describe_cpu()


def test_older_digest_without_a_cpu_can_be_read(tmp_path: Path) -> None:
    write_digest(make_test_digest(), tmp_path / "old.json")
    table = json.loads((tmp_path / "old.json").read_text())
    del table["cpu"]
    (tmp_path / "old.json").write_text(json.dumps(table))
    assert read_digest(tmp_path / "old.json").cpu == {}


def test_old_summary_is_converted(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    """In an old summary the mean was over the last 100 rounds: here over all four evaluations of the 12 rounds."""
    path = run_to_end(experiment(), tmp_path / "runs")
    new, table = make_digest(RunFolder(path)), fedcm("resume", path).out
    accuracies = [value for value in new.curve.test_accuracy if value is not None]
    old = {key: value for key, value in new.summary.items() if key not in ("test_losses", "manifest")}
    kept = {key: old["accuracy"][key] for key in ("last", "best", "rounds_to_best")}
    old["accuracy"] = kept | {"mean_last_100": sum(accuracies) / 4, "evaluations_in_last_100": 4}
    (forget_manifest(path) / "summary.json").write_text(json.dumps(old))
    assert make_digest(RunFolder(path)).summary | {"manifest": 1} == new.summary
    assert fedcm("resume", path).out == table
    assert "mean₂" in table


def test_training_loss_is_the_mean_since_the_last_evaluation() -> None:
    lines = make_lines(4, every=2)
    lines[1]["loss"] = None
    curve = extract_curve(lines)
    assert curve.train_loss[0] == pytest.approx(lines[0]["loss"], rel=1e-5)
    assert curve.train_loss[1] == pytest.approx((lines[2]["loss"] + lines[3]["loss"]) / 2, rel=1e-5)
    assert curve.bytes_down == [4_000_000, 8_000_000]


def test_run_without_evaluations_has_a_curve() -> None:
    untested = [{**line, "round": k} for k, line in enumerate(make_lines(1000, every=2000))]
    curve = extract_curve(untested)
    assert 100 <= len(curve.round) <= 200
    assert set(curve.test_accuracy) == {None}
    assert None not in curve.train_loss


def test_participation_counts_clients_by_rounds() -> None:
    seen = count_participation(make_lines(6, every=3), population=10)
    assert seen.times == [(0, 6), (2, 3), (6, 1)]
    assert count_participation(make_lines(6, every=3), population=None).times == [(2, 3), (6, 1)]


@pytest.mark.slow
def test_large_cohorts_are_drawn_again(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    """The lines of metrics have only the size of large cohorts; the clients are drawn again from the seed."""
    path = experiment(
        data={"source": "digits"},
        split={"kind": "iid", "clients": 1001},
        participation={"kind": "everyone"},
        model={"name": "linear"},
        engine={"stack": 256, "layout": "channels_last", "compile": "off"},
        rounds=2,
    )
    folder = run_to_end(path, tmp_path / "runs")
    assert not any("clients" in line for line in RunFolder(folder).read_metrics())
    seen = make_digest(RunFolder(folder)).participation
    assert (seen.times, seen.mean_cohort, seen.rounds) == ([(2, 1001)], 1001, 2)
    answer = fedcm("report", tmp_path / "runs", "-o", tmp_path / "page")
    assert (answer.code, answer.err) == (0, "")


def test_digest_of_500_rounds_is_small_and_reads_back_unchanged(tmp_path: Path) -> None:
    digest = make_test_digest().model_copy(update={"curve": extract_curve(make_lines(500, every=10))})
    write_digest(digest, tmp_path / "run.json")
    assert read_digest(tmp_path / "run.json") == digest
    assert (tmp_path / "run.json").stat().st_size < 20_000


def test_stopped_run_has_a_digest(experiment: Callable[..., Path], tmp_path: Path) -> None:
    digest = make_digest(RunFolder(run_and_stop_after(5, experiment(), tmp_path, "half")))
    assert (digest.state, digest.rounds_done) == ("stopped", 5)
    assert digest.curve.round == [3]


def test_label_mix_is_left_out_if_the_data_differ(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = run_to_end(experiment(rounds=1), tmp_path / "runs")
    provenance = json.loads((path / "provenance.json").read_text())
    provenance["data_sha256"]["split"] = "0" * 64
    (forget_manifest(path) / "provenance.json").write_text(json.dumps(provenance))
    assert make_digest(RunFolder(path), LabelMixFinder()).mix is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"digest": 2}',
        '{"digest": 1, "name": "a", "state": "finished", "experiment": {}, "summary": {}}',
    ],
)
def test_other_json_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(UserError, match="is not a run's digest"):
        read_digest(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("experiment", "algorithm"), 3),
        (("experiment", "cell"), {"labels": {"a": 1}}),
        (("summary", "accuracy"), {"last": "x"}),
        (("curve", "round"), [1]),
        (("mix", "shown"), [[1]]),
    ],
)
def test_inconsistent_digest_is_rejected(tmp_path: Path, where: tuple[str, str], value: Any) -> None:
    table = make_test_digest().model_dump()
    table[where[0]][where[1]] = value
    (tmp_path / "odd.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match="is not a run's digest"):
        read_digest(tmp_path / "odd.json")


@pytest.mark.slow
def test_digests_give_the_same_tables_as_their_runs(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    run_to_end(experiment(rounds=3), tmp_path / "runs" / "a", "same")
    run_to_end(experiment(rounds=3, seed=4), tmp_path / "runs" / "b", "same")
    answer = fedcm("report", tmp_path / "runs", "--digests", tmp_path / "digests")
    assert (answer.code, answer.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "digests").iterdir()) == ["a-same.json", "b-same.json"]
    for source, page in (("runs", "one"), ("digests", "two")):
        assert fedcm("report", tmp_path / source, "-o", tmp_path / page).code == 0
    one, two = ((tmp_path / page / "tables" / "numbers.csv").read_text() for page in ("one", "two"))
    assert one == two


def test_digest_has_the_diagnoses_without_their_cost() -> None:
    diagnosed = [{"round": k, "diagnosis": {"drift": 0.1 * k, "seconds": 3.0, "clients": 5}} for k in (1, 3)]
    diagnoses = extract_diagnoses([{"round": 0}, diagnosed[0], {"round": 2}, diagnosed[1]])
    assert diagnoses.round == [2, 4]
    assert diagnoses.values == {"drift": [pytest.approx(0.1), pytest.approx(0.3)]}
    assert extract_diagnoses([{"round": 0}]).round == []


def test_digest_file_has_the_diagnoses_under_the_key_found(tmp_path: Path) -> None:
    digest = make_test_digest(diagnoses=Diagnoses(round=[1], values={"drift": [0.5]}))
    write_digest(digest, tmp_path / "one.json")
    assert json.loads((tmp_path / "one.json").read_text())["diagnoses"] == {"round": [1], "found": {"drift": [0.5]}}
    assert read_digest(tmp_path / "one.json") == digest


def test_curve_has_the_consensus_distance_of_the_evaluated_rounds() -> None:
    lines = [line | {"consensus_distance": 0.123456789 / (line["round"] + 1)} for line in make_lines(4, every=2)]
    assert extract_curve(lines).consensus_distance == pytest.approx([0.123456789 / 2, 0.123456789 / 4], rel=1e-5)
    lines[3]["consensus_distance"] = float("inf")
    assert extract_curve(lines).consensus_distance == [pytest.approx(0.123456789 / 2, rel=1e-5), None]


def test_only_digests_of_decentralised_runs_have_a_consensus_distance(tmp_path: Path) -> None:
    for digest in (make_test_digest(), make_decentralised_digest()):
        write_digest(digest, tmp_path / "one.json")
        assert read_digest(tmp_path / "one.json") == digest
        stored = json.loads((tmp_path / "one.json").read_text())["curve"]
        assert ("consensus_distance" in stored) == digest.is_decentralised
    assert extract_curve(make_lines(4, every=2)).consensus_distance == []


def test_curve_has_the_conditions_since_the_last_evaluation() -> None:
    lines = [
        line
        | {"cohort": 3, "available": 10 + k, "missed": k, "simulated_seconds": 2.5}
        | {"steps": 4.0 + k, "steps_least": 3 - k % 2, "steps_most": 5 + k}
        for k, line in enumerate(make_lines(4, every=2))
    ]
    curve = extract_curve(lines)
    assert curve.simulated_seconds == [5.0, 10.0]
    assert (curve.available, curve.missed) == ([10.5, 12.5], [0.5, 2.5])
    assert (curve.steps, curve.steps_least, curve.steps_most) == ([4.5, 6.5], [2, 2], [6, 8])
    plain = extract_curve(make_lines(4, every=2))
    assert not any(getattr(plain, name) for name in SYSTEM_COLUMNS)


def test_a_digest_counts_the_steps_of_all_clients_in_all_rounds(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    clients = [(draw.normal(size=(12, 3)).astype("float32"), np.arange(12) % 2) for _ in range(5)]
    steps = fedcm.UniformWork(1, 4)
    experiment = fedcm.make_experiment(
        nn.Linear(3, 2), clients, fedcm.FedAvg(), rounds=3, participation=4, steps=steps, batch_size=4
    )
    run = fedcm.run(experiment, runs_dir=tmp_path)
    done = [steps.draw_amount(0, line["round"], client) for line in run.metrics for client in line["clients"]]
    assert len(done) == 12
    assert make_digest(run.folder).step_counts == sorted(Counter(done).items())
    fedcm.report(run, tmp_path / "report")
    assert len(list((tmp_path / "report" / "figures").glob("steps-*.png"))) == 1


def test_runs_with_equal_steps_or_of_an_earlier_version_have_no_step_counts() -> None:
    lines = [line | {"cohort": 3, "steps": 4.0} for line in make_lines(2, every=1)]
    assert count_steps(lines) == []
    assert count_steps([line | {"steps_least": 3, "steps_most": 5} for line in lines]) == []
    unequal = {"steps_least": 3, "steps_most": 5, "steps_clients": [[3, 1], [4, 1], [5, 1]]}
    assert count_steps([lines[0], lines[1] | unequal]) == [(3, 1), (4, 4), (5, 1)]


def test_only_digests_of_heterogeneous_runs_have_columns_of_the_system(tmp_path: Path) -> None:
    others = {"hostile", "backdoor_success", "largest_influence", "epsilon"}  # of attacks, federations and privacy
    for digest, expected in ((make_test_digest(), set()), (make_heterogeneous_digest(), set(SYSTEM_COLUMNS) - others)):
        write_digest(digest, tmp_path / "one.json")
        assert read_digest(tmp_path / "one.json") == digest
        stored = json.loads((tmp_path / "one.json").read_text())["curve"]
        assert set(stored) & set(SYSTEM_COLUMNS) == expected


def test_sites_are_summarised_over_all_rounds() -> None:
    def make_influence(**pairs: tuple[float, float]) -> dict[str, Any]:
        return {"influence": {site: {"share": share, "cosine": cosine} for site, (share, cosine) in pairs.items()}}

    records: list[dict[str, Any]] = [
        {"clients": [0, 1, 2], "missed": ["d"]} | make_influence(a=(0.25, 0.5), b=(0.5, -0.25), c=(0.25, 0.5)),
        {"clients": [0, 2], "missed": ["b", "d"]} | make_influence(a=(0.0, 0.75), b=(0.75, -0.5), c=(0.25, 0.5)),
        {"clients": [0, 1], "missed": ["c"]},  # two reports are not compared
        {"clients": []},  # a round without a cohort
        {"clients": [0, 1, 2], "missed": [], "shortened": ["b"]}
        | make_influence(a=(0.5, 0.25), b=(0.25, 0.0), c=(0.25, -0.75)),
    ]
    lines = [line | record for line, record in zip(make_lines(5, every=1), records, strict=True)]
    numbers = ("counted", "missed", "shortened", "mean_share", "largest_share", "largest_share_round", "lowest_cosine")
    expected = {
        "a": (4, 0, 0, 0.25, 0.5, 5, 0.25),
        "b": (3, 1, 1, 0.5, 0.75, 2, -0.5),
        "c": (3, 1, 0, 0.25, 0.25, 1, -0.75),
        "d": (0, 2, 0, None, None, None, None),
        "e": (0, 0, 0, None, None, None, None),  # never asked
    }
    assert summarise_sites(lines, ["a", "b", "c", "d", "e"]) == [
        SiteResults(site=site, **dict(zip(numbers, values, strict=True))) for site, values in expected.items()
    ]
    assert summarise_sites([line for line in lines if "influence" not in line], ["a", "b", "c", "d", "e"]) == []


def test_only_digests_with_influences_have_sites(tmp_path: Path) -> None:
    site = SiteResults(site="a", counted=3, missed=0, shortened=0)
    for digest in (make_test_digest(), make_test_digest(sites=[site])):
        write_digest(digest, tmp_path / "one.json")
        assert ("sites" in json.loads((tmp_path / "one.json").read_text())) == bool(digest.sites)
        assert read_digest(tmp_path / "one.json") == digest


def test_stored_digests_are_written_again_with_the_same_bytes(tmp_path: Path) -> None:
    stored = [sorted((RESULTS / name).glob("*.json"))[::8] for name in ("robust-digits", "privacy-digits")]
    assert all(stored)
    for path in (*stored[0], *stored[1]):
        write_digest(read_digest(path), tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_consensus_distance_of_another_length_is_rejected(tmp_path: Path) -> None:
    write_digest(make_decentralised_digest(), tmp_path / "one.json")
    table = json.loads((tmp_path / "one.json").read_text())
    del table["curve"]["consensus_distance"][0]
    (tmp_path / "one.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match="equally long"):
        read_digest(tmp_path / "one.json")
