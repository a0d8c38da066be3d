"""Rounds that are watched: the messages about diagnoses."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import Answer, run_and_stop_after

from fedcm.trackers.observation import report_cost


def test_the_cost_is_printed_after_the_first_diagnosis_and_at_the_end() -> None:
    sentences: list[str] = []
    rounds = [
        {"seconds": 2.0},
        {"seconds": 2.0, "diagnosis": {"seconds": 1.0}},
        {"seconds": 4.0, "diagnosis": {"seconds": 1.0}},
    ]
    assert list(report_cost(iter(rounds), 2, sentences.append)) == rounds
    assert sentences == [
        "a diagnosis takes 1 s; at this rate, diagnoses take 25% of the time of the rounds",
        "2 diagnoses took 2 s, 25% of the 8 s of the rounds",
    ]
    sentences.clear()
    resumed = [{"seconds": 1.0, "diagnosis": {"seconds": 4.0}}]
    list(report_cost(iter(resumed), 8, sentences.append))
    assert sentences[0] == "a diagnosis takes 4 s; at this rate, diagnoses take 50% of the time of the rounds", (
        "after one round of eight"
    )
    assert sentences[1] == "1 diagnosis took 4 s, 4 times the 1 s of the rounds"
    sentences.clear()
    list(report_cost(iter([{"seconds": 1.0}]), 2, sentences.append))
    assert not sentences


@pytest.mark.parametrize(("first", "rounds"), [(0, "12 rounds of this run"), (11, "remaining 1 round")])
def test_a_diagnosis_that_is_never_due_is_reported(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path, first: int, rounds: str
) -> None:
    runs, path = tmp_path / "runs", experiment(checkpoints={"every": 1})
    if first:
        run_and_stop_after(first, path, runs, "one")
        answer = fedcm("resume", runs / "one", "--diagnose", 50)
    else:
        answer = fedcm("run", path, "--runs-dir", runs, "--diagnose", 50)
    assert answer.code == 0, answer.err
    assert f"a diagnosis every 50 rounds is never due in the {rounds}\n" in answer.err
