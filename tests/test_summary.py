"""The summary says last, mean of the last 100 rounds and best; when a target was first reached; and what it cost."""

import hashlib
import struct
from typing import Any

import pytest
import torch

from fedcm.summary import params_sha256, rounds_to, summarise


def line(round: int, accuracy: float | None = None, cohort: int = 2, **more: Any) -> dict[str, Any]:
    base = {"round": round, "cohort": cohort, "loss": 1.0 if cohort else None, "seconds": 0.5}
    tested = {} if accuracy is None else {"test_accuracy": accuracy, "test_loss": 1 - accuracy}
    return base | {"bytes_down": 10 * cohort, "bytes_up": 3 * cohort} | tested | more


def test_the_mean_is_over_the_last_100_rounds_and_no_others() -> None:
    metrics = [line(r, accuracy=0.1 if r < 150 else 0.5 + r / 10_000) for r in range(250)]
    accuracy = summarise(metrics, [])["accuracy"]
    late = [0.5 + r / 10_000 for r in range(150, 250)]
    assert accuracy["mean_last_100"] == pytest.approx(sum(late) / 100)
    assert accuracy["evaluations_in_last_100"] == 100
    assert accuracy["last"] == late[-1]


def test_the_mean_is_over_those_of_the_last_100_rounds_that_were_evaluated() -> None:
    """Every 40th, and the last: rounds 159 and 199 lie in it, 119 does not."""
    metrics = [line(r, accuracy=(r + 1) / 1000 if (r + 1) % 40 == 0 else None) for r in range(220)]
    metrics[-1] = line(219, accuracy=0.5)
    accuracy = summarise(metrics, [])["accuracy"]
    assert accuracy["mean_last_100"] == pytest.approx((0.16 + 0.2 + 0.5) / 3)
    assert accuracy["evaluations_in_last_100"] == 3


def test_the_best_may_be_long_ago_and_counts_from_when_it_was_first_reached() -> None:
    metrics = [line(0, 0.2), line(1), line(2, 0.9), line(3, 0.4), line(4, 0.9), line(5, 0.3)]
    accuracy = summarise(metrics, [])["accuracy"]
    assert (accuracy["best"], accuracy["rounds_to_best"], accuracy["last"]) == (0.9, 3, 0.3)


def test_a_target_is_reached_after_the_rounds_it_took() -> None:
    evaluated = [line(4, 0.3), line(9, 0.6), line(14, 0.5)]
    assert rounds_to(evaluated, 0.3) == 5
    assert rounds_to(evaluated, 0.55) == 10
    assert rounds_to(evaluated, 0.7) is None
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
    assert summary["rounds_to_accuracy"] == {}


def test_the_losses_are_the_last_ones_that_there_are() -> None:
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


def test_the_checksum_is_of_the_parameters_bytes_in_their_order() -> None:
    values = [1.0, -2.5, 3e-9, 0.1]
    expected = hashlib.sha256(struct.pack("<4f", *values)).hexdigest()
    assert params_sha256(torch.tensor(values)) == expected
    assert params_sha256(torch.tensor(values, requires_grad=True)) == expected
    spread_out = torch.tensor([values, values]).T.contiguous()[:, 0]
    assert not spread_out.is_contiguous()
    assert params_sha256(spread_out) == expected
    assert params_sha256(torch.tensor(values[::-1])) != expected
