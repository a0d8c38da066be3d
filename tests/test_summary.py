"""The summary says last, mean of the last 100 rounds and best; and when a target was first reached."""

from typing import Any

import pytest

from fedcm.summary import LAST, rounds_to, summarise


def line(round: int, accuracy: float | None = None, cohort: int = 2) -> dict[str, Any]:
    base = {"round": round, "cohort": cohort, "loss": 1.0 if cohort else None, "seconds": 0.5}
    tested = {} if accuracy is None else {"test_accuracy": accuracy, "test_loss": 1 - accuracy}
    return base | {"bytes_down": 10 * cohort, "bytes_up": 3 * cohort} | tested


def test_the_mean_is_over_the_last_100_rounds_and_no_others() -> None:
    metrics = [line(r, accuracy=0.1 if r < 150 else 0.5 + r / 10_000) for r in range(250)]
    accuracy = summarise(metrics, [])["accuracy"]
    late = [0.5 + r / 10_000 for r in range(150, 250)]
    assert LAST == 100
    assert accuracy["mean_last_100"] == pytest.approx(sum(late) / 100)
    assert accuracy["evaluations_in_last_100"] == 100
    assert accuracy["last"] == late[-1]


def test_the_best_may_be_long_ago() -> None:
    metrics = [line(0, 0.2), line(1), line(2, 0.9), line(3, 0.4)]
    accuracy = summarise(metrics, [])["accuracy"]
    assert (accuracy["best"], accuracy["rounds_to_best"], accuracy["last"]) == (0.9, 3, 0.4)


def test_a_target_is_reached_after_the_rounds_it_took() -> None:
    evaluated = [line(4, 0.3), line(9, 0.6), line(14, 0.5)]
    assert rounds_to(evaluated, 0.3) == 5
    assert rounds_to(evaluated, 0.55) == 10
    assert rounds_to(evaluated, 0.7) is None


def test_bytes_seconds_and_empty_rounds_are_counted() -> None:
    summary = summarise([line(0), line(1, cohort=0), line(2)], [0.5])
    assert summary["rounds"] == 3
    assert summary["empty_rounds"] == 1
    assert summary["bytes_down"] == 40
    assert summary["bytes_up"] == 12
    assert summary["seconds"] == 1.5
    assert summary["accuracy"] is None
    assert summary["rounds_to_accuracy"] == {}
