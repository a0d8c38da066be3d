"""The search: equal budgets, pruning, resume and failures, with runs that follow a script."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_runs import ScriptedProcess, ScriptedRuns, score_by_rate

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.config.sections import Experiment
from fedcm.errors import Stopped, UserError
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.session import CoreShare
from fedcm.tuning.plan import TuningPlan, plan_tuning
from fedcm.tuning.search import Search, SearchOptions
from fedcm.tuning.trials import TrialLog, TuningTrial
from fedcm.tuning.winners import choose_winners, list_winner_runs

Write = Callable[..., Path]
RATE = "client.lr=0.001..1:log"


@pytest.fixture
def plan(experiment: Write) -> Callable[..., TuningPlan]:
    """A function that plans a tuning of a small experiment: `plan(RATE, trials=3)`."""

    def make(*over: str, trials: int = 3, **changes: Any) -> TuningPlan:
        return plan_tuning(experiment(), over or [RATE], trials=trials, **changes)

    return make


def search(plan: TuningPlan, folder: Path, jobs: int = 1, **options: Any) -> Search:
    """Run a search to its end."""
    one = Search(plan, folder, SearchOptions(CoreShare(jobs, 1), **options))
    for _ in one.run():
        pass
    return one


def list_results(one: Search) -> list[tuple[Any, ...]]:
    return [(t.algorithm, t.number, t.settings, t.state, t.score, t.points) for t in one.log.trials]


def test_the_score_is_the_validation_metric_although_the_test_set_disagrees(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script()
    one = search(plan("client.lr=0.1,1.0,0.001", trials=9), tmp_path / "tune", prune=False)
    (winner,) = choose_winners(one)
    assert {trial.settings["client.lr"] for trial in winner.trials} == {0.1, 1.0, 0.001}
    assert winner.best is not None
    assert winner.best.settings == {"client.lr": 0.1}
    lines = RunFolder(one.folder / winner.best.run).read_metrics()
    assert winner.best.score == pytest.approx(sum(line["validation_accuracy"] for line in lines[-2:]) / 2)
    by_test = {t.settings["client.lr"]: RunFolder(one.folder / t.run).read_metrics()[-1] for t in winner.trials}
    assert max(by_test, key=lambda rate: by_test[rate]["test_accuracy"]) != 0.1


def test_every_algorithm_gets_the_same_number_of_trials(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    runs = script()
    two = plan(RATE, "algorithm.alpha=0.01..1:log", trials=4, algorithms=["fedavg", "fedcm"])
    one = search(two, tmp_path / "tune")
    assert [len(one.list_trials(name)) for name in ("fedavg", "fedcm")] == [4, 4]
    assert runs.started == [f"trial-{k:04d}-{name}" for k in range(4) for name in ("fedavg", "fedcm")], "in turns"
    assert {tuple(trial.settings) for trial in one.list_trials("fedavg")} == {("client.lr",)}
    assert {tuple(trial.settings) for trial in one.list_trials("fedcm")} == {("client.lr", "algorithm.alpha")}
    alone = search(plan(RATE, trials=4, algorithms=["fedavg"]), tmp_path / "alone")
    assert [t.settings for t in alone.log.trials] == [t.settings for t in one.list_trials("fedavg")]


def test_a_trial_is_an_ordinary_run_with_its_settings(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script()
    one = search(plan(trials=2), tmp_path / "tune")
    for trial in one.log.trials:
        experiment = read_experiment(read_table(one.folder / trial.run / "experiment.toml"))
        assert experiment.client.lr == trial.settings["client.lr"]
        assert experiment.data.validation == 0.1
        assert experiment.cell.labels == {"client.lr": str(trial.settings["client.lr"])}
        assert (experiment.seed, trial.rounds) == (3, 12)


def test_hopeless_trials_are_stopped_as_ctrl_c_does_and_keep_their_rounds(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    runs = script()
    one = search(plan(trials=16), tmp_path / "tune")
    pruned = [trial for trial in one.log.trials if trial.state == "pruned"]
    assert pruned
    assert runs.interrupted == [trial.run for trial in pruned]
    for trial in pruned:
        folder = RunFolder(one.folder / trial.run)
        assert 3 <= len(folder.read_metrics()) == trial.rounds < 12
        assert folder.read_outcome() == "stopped"
        assert trial.score is None
    best = min(abs(score_by_rate(_read(one, t), 11)["validation_accuracy"] - 1) for t in one.log.trials)
    (winner,) = choose_winners(one)
    assert winner.best is not None
    assert best == pytest.approx(1 - score_by_rate(_read(one, winner.best), 11)["validation_accuracy"])
    script()
    assert all(t.state == "finished" for t in search(plan(trials=16), tmp_path / "b", prune=False).log.trials)


def _read(one: Search, trial: TuningTrial) -> Experiment:
    return read_experiment(read_table(one.folder / trial.run / "experiment.toml"))


def test_runs_that_are_faster_than_the_polls_are_pruned_at_the_same_round(
    plan: Callable[..., TuningPlan],
    script: Callable[..., ScriptedRuns],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script()
    slow = search(plan(trials=14), tmp_path / "slow")
    poll = ScriptedProcess.poll

    def finish_at_once(process: ScriptedProcess) -> int | None:
        while poll(process) is None:
            pass
        return process.returncode

    monkeypatch.setattr(ScriptedProcess, "poll", finish_at_once)
    fast = search(plan(trials=14), tmp_path / "fast")
    assert list_results(fast) == list_results(slow)
    assert any(trial.state == "pruned" for trial in fast.log.trials)


@pytest.mark.parametrize("polls", [0, 5, 40, 77])
def test_an_interrupted_search_continues_as_if_nothing_had_happened(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path, polls: int
) -> None:
    script()
    whole = search(plan(trials=14), tmp_path / "whole")
    calls = iter(range(10**6))
    first = script()
    with pytest.raises(Stopped):
        search(plan(trials=14), tmp_path / "tune", stop_requested=lambda: next(calls) >= polls)
    ended = [trial for trial in TrialLog(tmp_path / "tune" / "trials.jsonl").trials if trial.has_ended]
    assert len(first.started) <= len(ended) + 1
    second = script()
    resumed = search(plan(trials=14), tmp_path / "tune")
    assert list_results(resumed) == list_results(whole)
    assert not {trial.run for trial in ended} & set(second.started), "trials that ended are reused"
    third = script()
    assert list_results(search(plan(trials=14), tmp_path / "tune")) == list_results(whole)
    assert third.started == []


def test_a_larger_budget_extends_a_search(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script()
    whole = search(plan(trials=6), tmp_path / "whole")
    search(plan(trials=4), tmp_path / "tune")
    assert list_results(search(plan(trials=6), tmp_path / "tune")) == list_results(whole)
    assert len(search(plan(trials=2), tmp_path / "tune").list_trials("fedcm")) == 2, "only the first count"


def test_trials_in_parallel_use_the_whole_budget(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    runs = script()
    most = 0

    def count() -> bool:
        nonlocal most
        most = max(most, sum(process.returncode is None for process in runs.processes))
        return False

    one = search(plan(trials=7, algorithms=["fedavg", "fedcm"]), tmp_path / "tune", jobs=3, stop_requested=count)
    assert most == 3
    assert [len(one.list_trials(name)) for name in ("fedavg", "fedcm")] == [7, 7]
    assert all(trial.has_ended for trial in one.log.trials)
    settings = [str(trial.settings) for trial in one.list_trials("fedcm")]
    assert len(set(settings)) == 7


def test_a_diverged_trial_is_a_bad_trial_and_not_an_error(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script(score_by_rate, lambda experiment: experiment.client.lr > 0.05)
    one = search(plan(trials=6), tmp_path / "tune")
    diverged = [trial for trial in one.log.trials if trial.state == "diverged"]
    assert diverged
    assert all(trial.settings["client.lr"] > 0.05 and trial.score is None for trial in diverged)
    (winner,) = choose_winners(one)
    assert winner.best is not None
    assert winner.best.settings["client.lr"] <= 0.05


def test_if_every_trial_diverges_there_is_no_winner(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script(score_by_rate, lambda experiment: True)
    one = search(plan(trials=2), tmp_path / "tune")
    winners = choose_winners(one)
    assert [(winner.best, winner.file) for winner in winners] == [(None, None)]
    assert list_winner_runs(one, winners) == []


def test_settings_that_were_tried_are_not_run_again(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    runs = script()
    one = search(plan("client.batch_size=5,7", trials=8), tmp_path / "tune")
    assert len(runs.started) == 2
    assert len(one.list_trials("fedcm")) == 8
    assert sum(trial.rounds for trial in one.log.trials) == 24, "rounds count once"
    assert len({(trial.settings["client.batch_size"], trial.score, trial.run) for trial in one.log.trials}) == 2


def test_a_run_that_fails_ends_the_search_in_one_sentence_and_the_next_one_tries_again(
    plan: Callable[..., TuningPlan],
    script: Callable[..., ScriptedRuns],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = script()

    def fail(process: ScriptedProcess) -> int:
        return 1

    monkeypatch.setattr(ScriptedProcess, "poll", fail)
    monkeypatch.setattr("fedcm.tuning.search.read_result", lambda task, *_: setattr(task, "outcome", "failed"))
    with pytest.raises(UserError, match=r"^the run '.*trial-0000-fedcm' of a trial failed: "):
        search(plan(), tmp_path / "tune")
    assert [trial.state for trial in TrialLog(tmp_path / "tune" / "trials.jsonl").trials] == ["running"]
    monkeypatch.undo()
    assert runs.started == ["trial-0000-fedcm"]


def test_a_run_without_validation_is_an_error(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script(lambda experiment, round: {"test_accuracy": 0.5, "test_loss": 0.5})
    with pytest.raises(UserError, match=r"^a trial must be evaluated on validation data, but '.*' was not"):
        search(plan(), tmp_path / "tune")


def test_a_folder_with_another_run_is_not_overwritten(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script()
    one = search(plan(trials=1), tmp_path / "tune")
    other = tmp_path / "other"
    shutil.copytree(one.folder / "trial-0000-fedcm", other / "trial-0000-fedcm")
    (other / "trial-0000-fedcm" / "experiment.toml").write_text(
        (one.folder / "trial-0000-fedcm" / "experiment.toml").read_text().replace("rounds = 12", "rounds = 13")
    )
    with pytest.raises(
        UserError, match=r"must be the run of this trial, but it is there with other settings \(rounds\)"
    ):
        search(plan(trials=1), other)


def test_the_winners_file_is_the_experiment_of_its_trial(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script()
    one = search(plan(trials=3, seeds=2), tmp_path / "tune")
    (winner,) = choose_winners(one)
    assert winner.best is not None
    assert winner.file == one.folder / "best-fedcm.toml"
    written = read_experiment(read_table(one.folder / "best-fedcm.toml"))
    trial = read_experiment(read_table(one.folder / winner.best.run / "experiment.toml"))
    assert written.cell.labels == {}
    assert written.model_copy(update={"cell": trial.cell}) == trial
    runs = [run for _, run in list_winner_runs(one, [winner])]
    assert [(run.name, run.experiment.seed) for run in runs] == [("best-fedcm-seed4", 4), ("best-fedcm-seed5", 5)]
    assert all(run.experiment.client.lr == winner.best.settings["client.lr"] for run in runs)


def test_the_record_has_only_numbers_and_texts(
    plan: Callable[..., TuningPlan], script: Callable[..., ScriptedRuns], tmp_path: Path
) -> None:
    script()
    one = search(plan(trials=2), tmp_path / "tune")
    lines = [json.loads(line) for line in (one.folder / "trials.jsonl").read_text().splitlines()]
    assert [sorted(line) for line in lines] == [
        ["algorithm", "number", "run", "settings"],
        ["algorithm", "metric", "number", "points", "rounds", "score", "state"],
    ] * 2
    assert sorted(path.name for path in one.folder.iterdir()) == [
        *("trial-0000-fedcm", "trial-0001-fedcm", "trials.jsonl"),
    ]
