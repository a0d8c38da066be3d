"""A whole tuning: from its plan to the winners' runs, its files, its report and its lock."""

import fcntl
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import read_lines, run_to_end

import fedcm as api
from fedcm.errors import UserError
from fedcm.sweeps.session import CoreShare
from fedcm.tuning.estimate import estimate_tuning, to_tuning_table
from fedcm.tuning.plan import plan_tuning
from fedcm.tuning.search import SearchOptions
from fedcm.tuning.session import run_tuning, share_cores
from fedcm.tuning.winners import Winner, to_result_table, to_trial_rows

Write = Callable[..., Path]
OVER = ["client.lr=0.01..1:log", "algorithm.alpha=0.05,0.5"]


def tune(path: Path, runs: Path, *, notify: Any = lambda one: None, fresh: bool = False, **changes: Any) -> Any:
    settings = {"over": OVER, "trials": 3, "seeds": 2, "algorithms": ["fedavg", "fedcm"]} | changes
    plan = plan_tuning(path, settings.pop("over"), ["rounds=4", "evaluation.every=1"], **settings)
    return run_tuning(plan, runs, SearchOptions(CoreShare(1, 1), notify=notify), fresh=fresh)


@pytest.mark.usefixtures("in_process")
def test_a_tuning_ends_with_winners_whose_files_reproduce_their_trials(experiment: Write, tmp_path: Path) -> None:
    sentences: list[str] = []
    search, winners = tune(experiment(), tmp_path / "runs", notify=sentences.append)
    assert sentences[0] == (
        "the experiment has no validation data, so the trials hold back a share of the training data: "
        "data.validation = 0.1"
    )
    assert [winner.algorithm for winner in winners] == ["fedavg", "fedcm"]
    for winner in winners:
        assert winner.best.score == max(trial.score for trial in winner.trials if trial.score is not None)
        again = run_to_end(winner.file, tmp_path / "again", winner.algorithm)
        assert read_lines(again) == read_lines(search.folder / winner.best.run)
        seeds = [task.run.experiment.seed for task in winner.tasks]
        assert seeds == [4, 5]
        expected = []
        for task in winner.tasks:
            assert task.run.experiment.client.lr == winner.best.settings["client.lr"]
            expected.append(task.folder.read_metrics()[-1]["test_accuracy"])
        assert winner.list_test_scores() == pytest.approx(expected), "4 rounds: the score is the last one"
    _check_tables(winners)
    again_search, again_winners = tune(experiment(), tmp_path / "runs", notify=sentences.append)
    assert "6 of 6 trials have ended already" in sentences
    assert to_trial_rows(again_winners) == to_trial_rows(winners)
    assert again_search.folder == search.folder


def _check_tables(winners: list[Winner]) -> None:
    rows = to_trial_rows(winners)
    assert [(row["algorithm"], row["number"]) for row in rows] == [
        (n, k) for n in ("fedavg", "fedcm") for k in range(3)
    ]
    assert all(0.01 <= row["client.lr"] <= 1 for row in rows)
    table = json.loads(json.dumps(to_result_table(winners)))
    assert table["fedcm"]["trials"] == 3
    assert table["fedcm"]["rounds"] == sum(row["rounds"] for row in rows if row["algorithm"] == "fedcm") == 12
    assert statistics.fmean(table["fedcm"]["test"]) > 0


@pytest.mark.usefixtures("in_process")
def test_another_space_is_refused_and_fresh_starts_again(experiment: Write, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    small: dict[str, Any] = {"trials": 1, "seeds": 1, "algorithms": ["fedcm"]}
    search, _ = tune(experiment(), runs, **small)
    before = (search.folder / "trials.jsonl").read_bytes()
    with pytest.raises(UserError, match="changed; use --fresh, or another --name"):
        tune(experiment(), runs, over=["client.lr=0.5..1"], **small)
    assert (search.folder / "trials.jsonl").read_bytes() == before
    other, _ = tune(experiment(), runs, over=["client.lr=0.5..1"], fresh=True, **small)
    assert (other.folder / "trials.jsonl").read_bytes() != before
    (archived,) = (runs / "archive").glob("*/small-tune/trials.jsonl")
    assert archived.read_bytes() == before


def test_a_tuning_in_progress_is_not_started_twice(experiment: Write, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "small-tune"
    folder.mkdir(parents=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(UserError, match="is in progress in another process"):
            tune(experiment(), tmp_path / "runs")
    finally:
        os.close(descriptor)


def test_a_tuning_does_not_run_under_torchrun(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcm.tuning.session.is_launched", lambda: True)
    with pytest.raises(UserError, match="must not run under torchrun; start it alone"):
        tune(experiment(), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_cores_are_shared_among_trials(experiment: Write) -> None:
    plan = plan_tuning(experiment(), OVER, trials=3)
    assert share_cores(plan, 8) == CoreShare(3, 2)
    assert share_cores(plan, 2) == CoreShare(2, 1)
    assert share_cores(plan, 8, jobs=1) == CoreShare(1, 8)
    on_cuda = plan_tuning(experiment(engine={"device": "cuda"}), OVER, trials=3)
    assert share_cores(on_cuda, 4) == CoreShare(1, 4)


def test_an_estimate_counts_all_runs(experiment: Write, tmp_path: Path) -> None:
    plan = plan_tuning(experiment(), OVER, algorithms=["fedavg", "fedcm"], trials=5, seeds=3)
    estimates = estimate_tuning(plan, tmp_path / "runs", None)
    assert [(one.algorithm, one.trials, one.seeds) for one in estimates] == [("fedavg", 5, 3), ("fedcm", 5, 3)]
    table = to_tuning_table(estimates, 2)
    assert table["seconds"] == pytest.approx(sum(one.seconds for one in estimates) / 2)
    assert table["algorithms"][1]["space"] == {"client.lr": "0.01..1:log", "algorithm.alpha": "0.05,0.5"}
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_fedcm_tune_returns_the_best_settings_and_all_trials(experiment: Write, tmp_path: Path) -> None:
    result = api.tune(
        experiment(rounds=3),
        {"client.lr": (0.01, 1.0, "log"), "client.batch_size": [5, 7], "fedcm:algorithm.alpha": (0.1, 1, "step=0.1")},
        trials=2,
        algorithms=["fedavg", "fedcm"],
        runs_dir=tmp_path / "runs",
        name="mine",
    )
    assert result.path == tmp_path / "runs" / "mine"
    assert set(result.best["fedavg"].settings) == {"client.lr", "client.batch_size"}
    best = result.best["fedcm"]
    assert best.experiment.algorithm.alpha == best.settings["algorithm.alpha"]
    assert best.metric == "validation_accuracy"
    assert best.validation == max(row["score"] for row in result.trials if row["algorithm"] == "fedcm")
    assert [run.experiment.seed for run in best.runs] == [4]
    assert best.test == [best.runs[0].summary["accuracy"]["mean_last"]]
    _check_report(result.report())
    assert repr(result).startswith("<TuningResult: 4 trials of fedavg, fedcm in ")


def _check_report(page: Path) -> None:
    text = page.read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    common = ["history", "client.lr", "client.batch_size"]
    assert [picture["title"] for picture in data["search"]] == [
        *(f"fedavg: {name}" for name in common),
        *(f"fedcm: {name}" for name in [*common, "algorithm.alpha"]),
    ]
    assert [picture["log"] for picture in data["search"]] == [False, True, False, False, True, False, False]
    assert '<h2 id="search-title">Search</h2>' in text
    assert "Trials of fedcm, the best first" in text
    assert "2 trials finished" in text
    for name in ("fedavg", "fedcm"):
        assert (page.parent / "figures" / f"search-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len((page.parent / "tables" / f"trials-{name}.csv").read_text().splitlines()) == 3
    assert "best-fedcm-seed4" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"over": ["client.lr"]}, "over must be a dict"),
        ({"over": {"client.lr": 3}}, r"over\['client.lr'\] must be a range"),
        ({"over": {"client.lr": ("a", 1)}}, "path=low..high"),
        ({"over": {"client.lr": (0.1, 1), "x": (1, 2)}}, "there is no such setting"),
        ({"trials": 0}, "trials must be a whole number"),
        ({"seeds": 0}, "seeds must be a whole number"),
        ({"jobs": 0}, "jobs must be a whole number"),
        ({"algorithms": "fedcm"}, "algorithms must be a list"),
        ({"validation": "much"}, "validation must be a number"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    experiment: Write, tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    settings: dict[str, Any] = {"over": {"client.lr": (0.1, 1.0)}, "runs_dir": tmp_path / "runs"} | arguments
    with pytest.raises(UserError, match=reason):
        api.tune(experiment(), **settings)
    assert not (tmp_path / "runs").exists()
