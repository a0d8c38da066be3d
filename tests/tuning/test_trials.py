"""The record of the trials: everything is there after a crash, and nothing that was written by halves."""

from pathlib import Path

import pytest

from fedcm.errors import UserError
from fedcm.tuning.objective import LOSS, ValidationMetric
from fedcm.tuning.trials import TrialLog, TuningTrial, find_best

ACCURACY = ValidationMetric("validation_accuracy", higher_is_better=True, is_share=True)


def make_trial(number: int, score: float | None = None, metric: ValidationMetric = ACCURACY) -> TuningTrial:
    state = "running" if score is None else "finished"
    return TuningTrial(
        "fedcm", number, {"client.lr": 0.1 * number}, f"trial-{number}", state, metric, score, [(0, 0.5)], 3
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = TrialLog(tmp_path / "tune" / "trials.jsonl")
    for trial in (make_trial(0, 0.5), make_trial(1)):
        log.begin(trial)
    log.end(log.trials[0])
    first, second = TrialLog(log.path).trials
    assert first == make_trial(0, 0.5)
    assert (second.settings, second.state, second.has_ended) == ({"client.lr": 0.1}, "running", False)


def test_an_incomplete_last_line_is_dropped_and_overwritten(tmp_path: Path) -> None:
    log = TrialLog(tmp_path / "trials.jsonl")
    log.begin(make_trial(0))
    complete = log.path.read_bytes()
    log.path.write_bytes(complete + b'{"algorithm": "fed')
    again = TrialLog(log.path)
    assert len(again.trials) == 1
    again.begin(make_trial(1))
    assert [trial.number for trial in TrialLog(log.path).trials] == [0, 1]
    assert log.path.read_bytes().startswith(complete)


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"algorithm": "fedcm", "number": 7, "state": "finished"}'])
def test_a_damaged_record_is_one_sentence(tmp_path: Path, line: str) -> None:
    (tmp_path / "trials.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"is damaged: .*; use --fresh, or another --name$"):
        TrialLog(tmp_path / "trials.jsonl")


def test_the_best_trial_has_the_highest_accuracy_or_the_lowest_loss() -> None:
    scores = [0.3, 0.9, 0.9, 0.1]
    accuracies = [make_trial(k, score) for k, score in enumerate(scores)]
    losses = [make_trial(k, score, LOSS) for k, score in enumerate(scores)]
    best = find_best([*accuracies, make_trial(9)])
    assert best is accuracies[1], "the first of two"
    assert find_best(losses) is losses[3]
    assert find_best([make_trial(0)]) is None


def test_only_finished_trials_can_be_the_best() -> None:
    pruned, diverged = make_trial(0, 1.0), make_trial(1, 1.0)
    pruned.state, diverged.state = "pruned", "diverged"
    finished = make_trial(2, 0.1)
    assert find_best([pruned, diverged, finished]) is finished
