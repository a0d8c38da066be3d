"""The summary has the last score, the mean of the last rounds, the best one, and the rounds to each target."""

import hashlib
import struct
from typing import Any

import pytest
import torch

from fedcm.runs.summary import (
    bring_up_to_date,
    count_averaged_rounds,
    count_rounds_to,
    hash_params,
    is_up_to_date,
    read_points,
    summarise,
)


def line(round: int, accuracy: float | None = None, cohort: int = 2, **more: Any) -> dict[str, Any]:
    base = {"round": round, "cohort": cohort, "loss": 1.0 if cohort else None, "seconds": 0.5}
    tested = {} if accuracy is None else {"test_accuracy": accuracy, "test_loss": 1 - accuracy}
    return base | {"bytes_down": 10 * cohort, "bytes_up": 3 * cohort} | tested | more


@pytest.mark.parametrize(
    ("rounds", "averaged"),
    [(4000, 100), (500, 100), (499, 50), (400, 40), (250, 25), (30, 3), (12, 2), (10, 1), (1, 1)],
)
def test_a_long_run_averages_100_rounds_and_a_short_one_a_tenth(rounds: int, averaged: int) -> None:
    metrics = [line(r, accuracy=(0.5 + r / 10_000) if r >= rounds - averaged else 0.1) for r in range(rounds)]
    late = [0.5 + r / 10_000 for r in range(rounds - averaged, rounds)]
    summary = summarise(metrics, [])
    for found, mean in ((summary["accuracy"], sum(late)), (summary["test_losses"], len(late) - sum(late))):
        assert found["mean_last"] == pytest.approx(mean / averaged)
        assert (found["mean_last_rounds"], found["mean_last_evaluations"]) == (averaged, averaged)
    assert summary["accuracy"]["last"] == late[-1]
    assert count_averaged_rounds(rounds) == averaged


def test_the_last_evaluation_counts_if_the_last_rounds_have_none() -> None:
    accuracy = summarise([line(r, {2: 0.3, 6: 0.6}.get(r)) for r in range(9)], [])["accuracy"]
    assert accuracy["mean_last"] == 0.6
    assert (accuracy["mean_last_rounds"], accuracy["mean_last_evaluations"]) == (3, 1)


def test_the_best_value_counts_from_the_round_that_first_reached_it() -> None:
    summary = summarise([line(0, 0.2), line(1), line(2, 0.9), line(3, 0.9), line(4, 0.4)], [])
    accuracy, losses = summary["accuracy"], summary["test_losses"]
    assert (accuracy["best"], accuracy["rounds_to_best"], accuracy["last"]) == (0.9, 3, 0.4)
    assert (losses["best"], losses["rounds_to_best"], losses["last"]) == (pytest.approx(0.1), 3, 0.6)
    assert summary["test_loss"] == 0.6


def test_a_regression_has_test_losses_and_no_accuracy() -> None:
    metrics = [line(r) | {"test_loss": loss, "test_accuracy": None} for r, loss in enumerate((3.0, 1.0, 2.0))]
    summary = summarise(metrics, [0.5])
    assert (summary["accuracy"], summary["rounds_to_accuracy"]) == (None, {})
    assert (summary["test_losses"]["last"], summary["test_losses"]["best"]) == (2.0, 1.0)


def old_summary(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary of an older version: it has the mean of the last 100 rounds, also for a short run."""
    accuracies = [line["test_accuracy"] for line in metrics if line["round"] >= len(metrics) - 100]
    mean = {"mean_last_100": sum(accuracies) / len(accuracies), "evaluations_in_last_100": len(accuracies)}
    summary = summarise(metrics, [])
    kept = {key: summary["accuracy"][key] for key in ("last", "best", "rounds_to_best")}
    return {key: value for key, value in summary.items() if key != "test_losses"} | {"accuracy": mean | kept}


@pytest.mark.parametrize("rounds", [500, 600])
def test_an_old_summary_of_a_long_run_has_the_same_mean_with_or_without_its_curve(rounds: int) -> None:
    metrics = [line(r, r / 1000) for r in range(rounds)]
    old, new = old_summary(metrics), summarise(metrics, [])
    points = read_points(metrics, "test_accuracy"), read_points(metrics, "test_loss")
    assert not is_up_to_date(old)
    for given in (points, ([], [])):
        accuracy = bring_up_to_date(old, *given)["accuracy"]
        assert accuracy == new["accuracy"] | {"mean_last": pytest.approx(new["accuracy"]["mean_last"])}
    assert is_up_to_date(bring_up_to_date(old, *points))
    assert bring_up_to_date(old, *points)["test_losses"] == new["test_losses"]


def test_an_old_summary_of_a_short_run_is_computed_again_from_its_curve() -> None:
    metrics = [line(r, r / 1000) for r in range(30)]
    old, new = old_summary(metrics), summarise(metrics, [])
    points = read_points(metrics, "test_accuracy"), read_points(metrics, "test_loss")
    assert old["accuracy"]["mean_last_100"] == pytest.approx(0.0145)
    assert bring_up_to_date(old, *points) == new


def test_an_old_summary_of_a_short_run_without_its_curve_keeps_its_mean_over_100_rounds() -> None:
    old = old_summary([line(r, r / 1000) for r in range(30)])
    accuracy = bring_up_to_date(old, [], [])["accuracy"]
    assert accuracy["mean_last"] == old["accuracy"]["mean_last_100"]
    assert accuracy["mean_last_rounds"] == 100


def test_current_summaries_and_those_without_an_evaluation_are_unchanged() -> None:
    for metrics in ([line(0, 0.5), line(1, 0.6)], [line(0), line(1)]):
        summary = summarise(metrics, [])
        assert is_up_to_date(summary)
        assert bring_up_to_date(summary, [], []) == summary


def test_the_rounds_to_a_target_are_counted() -> None:
    evaluated = [line(4, 0.3), line(9, 0.6), line(14, 0.5)]
    points = read_points(evaluated, "test_accuracy")
    assert count_rounds_to(points, 0.3) == 5
    assert count_rounds_to(points, 0.55) == 10
    assert count_rounds_to(points, 0.7) is None
    metrics = [line(r) for r in range(4)] + evaluated[:1]
    assert summarise(metrics, [0.25, 0.9])["rounds_to_accuracy"] == {"0.25": 5, "0.9": None}


def test_bytes_seconds_and_empty_rounds_are_counted() -> None:
    summary = summarise([line(0, seconds=0.1234), line(1, cohort=0, seconds=0.1), line(2, seconds=0.1)], [0.5])
    assert summary["rounds"] == 3
    assert summary["empty_rounds"] == 1
    assert summary["bytes_down"] == 40
    assert summary["bytes_up"] == 12
    assert summary["seconds"] == 0.323, "to the millisecond"
    assert summary["accuracy"] is None
    assert summary["test_losses"] is None
    assert summary["rounds_to_accuracy"] == {}


def test_the_losses_are_the_last_known_ones() -> None:
    metrics = [line(0, 0.5, loss=4.0), line(1, 0.125, loss=3.0), line(2, 0.25, loss=2.0), line(3, cohort=0)]
    summary = summarise(metrics, [])
    assert (summary["train_loss"], summary["test_loss"]) == (2.0, 0.75)
    nothing = summarise([line(0, cohort=0)], [])
    assert (nothing["train_loss"], nothing["test_loss"]) == (None, None)


def test_a_regression_has_a_test_loss_and_no_accuracy() -> None:
    summary = summarise(
        [line(0, test_accuracy=None, test_loss=0.5), line(1, test_accuracy=None, test_loss=0.25)], [0.5]
    )
    assert (summary["test_loss"], summary["accuracy"], summary["rounds_to_accuracy"]) == (0.25, None, {})


def test_the_checksum_covers_the_parameters_bytes_in_order() -> None:
    values = [1.0, -2.5, 3e-9, 0.1]
    expected = hashlib.sha256(struct.pack("<4f", *values)).hexdigest()
    assert hash_params(torch.tensor(values)) == expected
    assert hash_params(torch.tensor(values, requires_grad=True)) == expected
    spread_out = torch.tensor([values, values]).T.contiguous()[:, 0]
    assert not spread_out.is_contiguous()
    assert hash_params(spread_out) == expected
    assert hash_params(torch.tensor(values[::-1])) != expected
