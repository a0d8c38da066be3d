"""A run's digest holds what the run's files hold, in few bytes, and reads back as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_digests import made
from scenes import Answer, stopped_after, summary_of, whole

from fedcm.errors import UserError
from fedcm.reports.condense import condensed, diagnoses, participation, thinned
from fedcm.reports.digest import read_digest, write_digest
from fedcm.reports.mixes import Mixes
from fedcm.runs.folder import RunFolder
from fedcm.system.processor import describe_cpu


def lines(rounds: int, every: int) -> list[dict[str, Any]]:
    tested = {k for k in range(rounds) if (k + 1) % every == 0}
    return [
        {"round": k, "cohort": 2, "clients": [k % 3, 7], "loss": 1.23456789 / (k + 1), "update_norm": 0.1234567}
        | {"bytes_down": 2_000_000, "bytes_up": 1_000_000, "seconds": 0.123456}
        | ({"test_accuracy": k / rounds / 3, "test_loss": 2.3456789 / (k + 1)} if k in tested else {})
        for k in range(rounds)
    ]


def test_a_digest_says_what_the_runs_files_say(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = whole(experiment(cell={"labels": {"setting": "II"}, "published": 50.5}), tmp_path / "runs")
    digest = condensed(RunFolder(path), Mixes())
    metrics = RunFolder(path).read_metrics()
    tested = [line for line in metrics if "test_accuracy" in line]
    assert digest.summary == summary_of(path)
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


def test_a_digest_from_before_the_cpu_was_recorded_still_reads(tmp_path: Path) -> None:
    write_digest(made(), tmp_path / "old.json")
    table = json.loads((tmp_path / "old.json").read_text())
    del table["cpu"]
    (tmp_path / "old.json").write_text(json.dumps(table))
    assert read_digest(tmp_path / "old.json").cpu == {}


def test_a_folder_with_an_old_summary_has_todays_figures(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    """Of 12 rounds evaluated every third, the mean of the last 100 was that of all four evaluations."""
    path = whole(experiment(), tmp_path / "runs")
    new, table = condensed(RunFolder(path)), fedcm("resume", path).out
    accuracies = [value for value in new.curve.test_accuracy if value is not None]
    old = {key: value for key, value in new.summary.items() if key != "test_losses"}
    kept = {key: old["accuracy"][key] for key in ("last", "best", "rounds_to_best")}
    old["accuracy"] = kept | {"mean_last_100": sum(accuracies) / 4, "evaluations_in_last_100": 4}
    (path / "summary.json").write_text(json.dumps(old))
    assert condensed(RunFolder(path)).summary == new.summary
    assert fedcm("resume", path).out == table
    assert "mean₂" in table


def test_the_training_loss_is_the_mean_since_the_last_evaluation() -> None:
    made_lines = lines(4, every=2)
    made_lines[1]["loss"] = None
    curve = thinned(made_lines)
    assert curve.train_loss[0] == pytest.approx(made_lines[0]["loss"], rel=1e-5)
    assert curve.train_loss[1] == pytest.approx((made_lines[2]["loss"] + made_lines[3]["loss"]) / 2, rel=1e-5)
    assert curve.bytes_down == [4_000_000, 8_000_000]


def test_a_run_that_was_never_evaluated_still_has_a_curve() -> None:
    untested = [{**line, "round": k} for k, line in enumerate(lines(1000, every=2000))]
    curve = thinned(untested)
    assert 100 <= len(curve.round) <= 200
    assert set(curve.test_accuracy) == {None}
    assert None not in curve.train_loss


def test_clients_are_counted_by_how_often_they_took_part() -> None:
    seen = participation(lines(6, every=3), population=10)
    assert seen.times == [(0, 6), (2, 3), (6, 1)]
    assert participation(lines(6, every=3), population=None).times == [(2, 3), (6, 1)]


def test_a_run_whose_cohorts_are_too_large_to_be_named_is_reported(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    """Its lines say how many took part, not who: that is drawn again from the seed."""
    path = experiment(
        data={"source": "digits"},
        split={"kind": "iid", "clients": 1001},
        participation={"kind": "everyone"},
        model={"name": "linear"},
        engine={"stack": 256, "layout": "channels_last", "compile": "off"},
        rounds=2,
    )
    folder = whole(path, tmp_path / "runs")
    assert not any("clients" in line for line in RunFolder(folder).read_metrics())
    seen = condensed(RunFolder(folder)).participation
    assert (seen.times, seen.mean_cohort, seen.rounds) == ([(2, 1001)], 1001, 2)
    answer = fedcm("report", tmp_path / "runs", "-o", tmp_path / "page")
    assert (answer.code, answer.err) == (0, "")


def test_a_digest_of_500_rounds_is_small_and_reads_back_as_it_was(tmp_path: Path) -> None:
    digest = made().model_copy(update={"curve": thinned(lines(500, every=10))})
    write_digest(digest, tmp_path / "run.json")
    assert read_digest(tmp_path / "run.json") == digest
    assert (tmp_path / "run.json").stat().st_size < 20_000


def test_a_stopped_run_is_told_as_far_as_it_came(experiment: Callable[..., Path], tmp_path: Path) -> None:
    digest = condensed(RunFolder(stopped_after(5, experiment(), tmp_path, "half")))
    assert (digest.state, digest.rounds_done) == ("stopped", 5)
    assert digest.curve.round == [3]


def test_the_mix_is_left_out_where_the_data_are_others(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = whole(experiment(rounds=1), tmp_path / "runs")
    provenance = json.loads((path / "provenance.json").read_text())
    provenance["data_sha256"]["split"] = "0" * 64
    (path / "provenance.json").write_text(json.dumps(provenance))
    assert condensed(RunFolder(path), Mixes()).mix is None


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
def test_what_is_no_digest_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
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
def test_a_digest_that_does_not_hold_together_is_refused(tmp_path: Path, where: tuple[str, str], value: Any) -> None:
    table = made().model_dump()
    table[where[0]][where[1]] = value
    (tmp_path / "odd.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match="is not a run's digest"):
        read_digest(tmp_path / "odd.json")


def test_digests_are_written_one_a_run_and_make_the_same_page(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    whole(experiment(rounds=3), tmp_path / "runs" / "a", "same")
    whole(experiment(rounds=3, seed=4), tmp_path / "runs" / "b", "same")
    answer = fedcm("report", tmp_path / "runs", "--digests", tmp_path / "digests")
    assert (answer.code, answer.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "digests").iterdir()) == ["a-same.json", "b-same.json"]
    for source, page in (("runs", "one"), ("digests", "two")):
        assert fedcm("report", tmp_path / source, "-o", tmp_path / page).code == 0
    one, two = ((tmp_path / page / "tables" / "numbers.csv").read_text() for page in ("one", "two"))
    assert one == two


def test_a_digest_keeps_what_diagnoses_found_and_not_what_they_cost() -> None:
    told = [{"round": k, "diagnosis": {"drift": 0.1 * k, "seconds": 3.0, "clients": 5}} for k in (1, 3)]
    found = diagnoses([{"round": 0}, told[0], {"round": 2}, told[1]])
    assert found.round == [2, 4]
    assert found.found == {"drift": [pytest.approx(0.1), pytest.approx(0.3)]}
    assert diagnoses([{"round": 0}]).round == []
