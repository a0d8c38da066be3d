"""A run ends early as a pure function of its metrics."""

from itertools import pairwise
from typing import Any

import pytest

from fedcm.core.participation import Everyone
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.schedule import Schedule
from fedcm.core.stopping import BestRound, StopRule, StopWatch, WatchedMetric

ACCURACY = WatchedMetric("validation_accuracy", higher_is_better=True)
LOSS = WatchedMetric("validation_loss", higher_is_better=False)
TRAINING = WatchedMetric("loss", higher_is_better=False)


def lines(column: str, values: list[float | None], every: int = 1) -> list[dict[str, Any]]:
    """One evaluation every `every` rounds."""
    made = []
    for k, value in enumerate(values):
        made += [{"round": every * k + j} for j in range(every - 1)]
        made.append({"round": every * (k + 1) - 1, column: value})
    return made


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(
    ("patience", "min_delta", "values", "evaluation"),
    [
        (1, 0.0, [0.1, 0.2, 0.2], 2),  # equal is no improvement
        (2, 0.0, [0.1, 0.2, 0.15, 0.25, 0.2, 0.2], 5),
        (2, 0.06, [0.1, 0.15, 0.2, 0.25, 0.28, 0.3], None),  # small steps add up: each is compared with the best
        (2, 0.11, [0.1, 0.15, 0.2, 0.25, 0.28, 0.3], 2),
        (3, 0.0, [0.5, 0.4, 0.3], None),
        (2, 0.0, [0.5, None, 0.4, None, 0.3], 4),  # a metric that is not defined does not count
    ],
)
def test_patience_counts_evaluations_without_an_improvement(
    patience: int, min_delta: float, values: list[float | None], evaluation: int | None, every: int
) -> None:
    rule = StopRule(ACCURACY, patience, min_delta, None, every)
    found = rule.find(lines("validation_accuracy", values, every))
    assert (found and found.round) == (None if evaluation is None else every * (evaluation + 1) - 1)
    lower = StopRule(LOSS, patience, min_delta, None, every)
    negative = lower.find(lines("validation_loss", [None if v is None else -v for v in values], every))
    assert (negative and negative.round) == (found and found.round)


@pytest.mark.parametrize(
    ("metric", "values", "target", "round"), [(ACCURACY, [0.1, 0.5], 0.5, 1), (LOSS, [3, 1], 2, 1)]
)
def test_a_target_is_reached_in_the_direction_of_the_metric(
    metric: WatchedMetric, values: list[float], target: float, round: int
) -> None:
    found = StopRule(metric, None, 0.0, target, 1).find(lines(metric.column, list(values)))
    assert found is not None
    assert found.round == round
    assert "reached" in found.reason


def test_the_training_loss_is_averaged_between_evaluations() -> None:
    noisy = [{"round": k, "loss": value} for k, value in enumerate([4.0, 0.0, 1.0, 2.0, None, 1.0])]
    assert StopRule(TRAINING, None, 0.0, 1.5, 2).find(noisy) == (3, "loss reached 1.5: 1.5")
    assert StopRule(TRAINING, None, 0.0, 1.0, 2).find(noisy) == (5, "loss reached 1: 1")


def test_an_evaluation_that_was_not_due_does_not_count() -> None:
    """The last round of a run that was made longer was evaluated too."""
    rule = StopRule(ACCURACY, 2, 0.0, None, 3)
    plain = lines("validation_accuracy", [0.5, 0.4, 0.3], 3)
    longer = [line | ({"validation_accuracy": 0.1} if line["round"] == 3 else {}) for line in plain]
    assert rule.find(plain) == rule.find(longer)


def test_a_rule_continues_where_it_stopped() -> None:
    rule = StopRule(TRAINING, 2, 0.0, None, 3)
    plan = TrainingPlan(30, 1, Everyone(), Schedule(0.1), stop=rule)
    run = [{"round": k, "loss": 1 / (k + 1) if k < 9 else 0.5, "seconds": 1.0} for k in range(30)]
    whole = rule.find(run)
    for first in range(30):
        watch = StopWatch(rule, plan.select_watched(run[:first]))
        for line in run[first:]:
            watch.add(line)
        assert watch.reason == whole


def test_the_best_round_is_the_first_of_equals() -> None:
    values = [0.1, 0.4, 0.3, 0.4, None, 0.2]
    best = BestRound(ACCURACY, lines("validation_accuracy", values))
    assert (best.round, best.value) == (1, 0.4)
    rising = [round for before, round in pairwise(range(3)) if BestRound(ACCURACY, [{"round": before}]).round is None]
    assert rising == [1, 2]
