"""When a run ends early, and which round was the best: pure functions of the run's metrics.

Every process computes them from the same numbers, and a resumed run computes them again from its metrics.jsonl.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

Line = Mapping[str, Any]  # of metrics.jsonl
TRAINING_LOSS = "loss"  # the column of the training loss


@final
@dataclass(frozen=True)
class Stop:
    """When a training ends early, for `fedcm.train(…, stop=fedcm.Stop(patience=5))`.

    Attributes:
        metric: What is watched: `validation_` and a metric, by default the first one, or "loss" for the training loss.
        patience: Evaluations without an improvement after which the training ends.
        min_delta: The smallest change that counts as an improvement.
        target: The training ends when the metric reaches this value.
    """

    metric: str | None = None
    patience: int | None = None
    min_delta: float = 0.0
    target: float | None = None


class StopReason(NamedTuple):
    """Why a run ended early."""

    round: int  # the last round, counted from 0
    reason: str


class WatchedMetric(NamedTuple):
    """A column of metrics.jsonl and its direction."""

    column: str
    higher_is_better: bool

    def to_gain(self, value: float) -> float:
        """Return a value with its sign chosen such that more is better."""
        return value if self.higher_is_better else -value


@final
class BestRound:
    """The best round so far by a metric; the first one of equals.

    Attributes:
        round: The best round; None before the first evaluation.
        value: The metric in that round.
    """

    def __init__(self, metric: WatchedMetric, lines: Iterable[Line] = ()) -> None:
        self.metric = metric
        self.round: int | None = None
        self.value: float | None = None
        for line in lines:
            self.add(line)

    def add(self, line: Line, min_delta: float = 0.0) -> bool:
        """Take the next round and return whether it is better than all before by more than `min_delta`."""
        value = line.get(self.metric.column)
        if value is None:
            return False
        if self.value is not None:
            gain = self.metric.to_gain(value) - self.metric.to_gain(self.value)
            if gain <= min_delta:
                return False
        self.round, self.value = line["round"], value
        return True


@final
@dataclass(frozen=True)
class StopRule:
    """When a run ends early, for the metrics of one training.

    Attributes:
        metric: The column that is watched. The training loss is averaged over the rounds since the evaluation before.
        patience: Evaluations without an improvement after which the run ends.
        min_delta: The smallest change that counts as an improvement.
        target: The run ends when the metric reaches this value.
        every: Rounds between evaluations.
    """

    metric: WatchedMetric
    patience: int | None
    min_delta: float
    target: float | None
    every: int

    def find(self, lines: Iterable[Line]) -> StopReason | None:
        """Return when and why a run with these metrics ends early; None if it does not."""
        watch = StopWatch(self)
        return next((reason for line in lines if (reason := watch.add(line))), None)


@final
class StopWatch:
    """Applies a rule to one round after another."""

    def __init__(self, rule: StopRule, lines: Iterable[Line] = ()) -> None:
        self.rule = rule
        self.reason: StopReason | None = None
        self._best = BestRound(rule.metric)
        self._without_improvement = 0
        self._losses: list[float] = []
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> StopReason | None:
        """Take the metrics of the next round, and return why the run ends now; None if it does not."""
        rule, column = self.rule, self.rule.metric.column
        value = self._average_loss(line) if column == TRAINING_LOSS else line.get(column)
        is_due = (line["round"] + 1) % rule.every == 0  # the last round of a run that was made longer may not be
        if value is None or not is_due or self.reason is not None:
            return self.reason
        improved = self._best.add({"round": line["round"], column: value}, rule.min_delta)
        self._without_improvement = 0 if improved else self._without_improvement + 1
        if rule.target is not None and rule.metric.to_gain(value) >= rule.metric.to_gain(rule.target):
            self.reason = StopReason(line["round"], f"{column} reached {rule.target:g}: {value:.6g}")
        elif rule.patience is not None and self._without_improvement >= rule.patience:
            best = f"the best was {self._best.value:.6g} in round {self._best.round}"
            times = "evaluation" if rule.patience == 1 else "evaluations"
            text = f"{column} did not improve in {rule.patience} {times}; {best}"
            self.reason = StopReason(line["round"], text)
        return self.reason

    def _average_loss(self, line: Line) -> float | None:
        """Return the mean training loss since the last evaluation that was due; None before the next one is."""
        if line.get(TRAINING_LOSS) is not None:
            self._losses.append(line[TRAINING_LOSS])
        if (line["round"] + 1) % self.rule.every or not self._losses:
            return None
        losses, self._losses = self._losses, []
        return statistics.fmean(losses)
