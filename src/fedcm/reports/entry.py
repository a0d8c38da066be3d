"""One entry of a table: the runs that differ only in their seed, with their scores, mean curve and costs."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from fedcm.reports.digest import Curve, Digest
from fedcm.reports.metric import ACCURACY, Metric, describe_divergence

MEASURES = {"mean_last": "mean of the last rounds", "last": "last round", "best": "best round"}
MAIN = "mean_last"
_SCORED = ("test_accuracy", "test_loss", "train_loss", "consensus_distance")  # curves with a mean and a deviation
_COUNTED = ("bytes_down", "bytes_up", "seconds", "simulated_seconds")  # x axes, with a mean only


class TargetCost(NamedTuple):
    """What it took to reach an accuracy: means over the runs that reached it."""

    rounds: float
    bytes: float  # down and up
    reached: int
    runs: int


@final
@dataclass(frozen=True)
class Entry:
    """Runs that differ only in their seed."""

    runs: tuple[Digest, ...]
    metric: Metric = ACCURACY

    @property
    def counted_runs(self) -> tuple[Digest, ...]:
        """Finished and diverged runs; if there are none, the unfinished ones."""
        return tuple(run for run in self.runs if run.state in ("finished", "diverged")) or self.runs

    def list_values(self, measure: str = MAIN) -> list[float]:
        """Return the shown values, one per evaluated run; none if a run diverged."""
        if self.divergence:
            return []
        summaries = (read_metric_summary(run, self.metric) for run in self.counted_runs)
        return [self.metric.scale * values[measure] for values in summaries if values]

    def list_gains(self) -> dict[int, float]:
        """Return the main measure by seed such that more is better; a diverged run has −∞."""
        gains: dict[int, float] = {}
        for run in self.counted_runs:
            values = read_metric_summary(run, self.metric)
            if run.divergence_round is not None:
                gains[run.seed] = -math.inf
            elif values:
                gains[run.seed] = self.metric.to_gain(self.metric.scale * values[MAIN])
        return gains

    def mean(self, measure: str = MAIN) -> float | None:
        """Return the mean over seeds; None without an evaluated run or if a run diverged."""
        values = self.list_values(measure)
        return statistics.fmean(values) if values else None

    def deviation(self, measure: str = MAIN) -> float | None:
        """Return the sample standard deviation over seeds; None for fewer than two."""
        values = self.list_values(measure)
        return statistics.stdev(values) if len(values) > 1 else None

    def format(self, measure: str = MAIN) -> str:
        """Format mean ± standard deviation, or the divergence.

        >>> Entry(()).format()
        '–'
        """
        mean, deviation = self.mean(measure), self.deviation(measure)
        if mean is None:
            return self.divergence or "–"
        spread = "" if deviation is None else f" ± {self.metric.format_deviation(deviation)}"
        return self.metric.format(mean) + spread

    def validation_gain(self) -> float | None:
        """Return the main measure on the validation data such that more is better; None if a run has none."""
        scores = [run.read_validation_scores(self.metric) for run in self.counted_runs]
        values = [self.metric.to_gain(self.metric.scale * one[MAIN]) for one in scores if one]
        return statistics.fmean(values) if values and len(values) == len(scores) and not self.divergence else None

    @property
    def averaged_rounds(self) -> set[int]:
        """The numbers of last rounds that the main measure averages; empty if a run diverged."""
        if self.divergence:
            return set()
        summaries = (read_metric_summary(run, self.metric) for run in self.counted_runs)
        return {int(values["mean_last_rounds"]) for values in summaries if values}

    @property
    def published(self) -> float | None:
        """The published accuracy in percent; None if there is none or the metric is the loss."""
        known = (run.published for run in self.runs if run.published is not None)
        return next(known, None) if self.metric == ACCURACY else None

    @property
    def is_finished(self) -> bool:
        """Whether all counted runs are finished or diverged."""
        return all(run.state in ("finished", "diverged") for run in self.counted_runs)

    @property
    def is_comparable(self) -> bool:
        """Whether the entry is finished, with a value or diverged."""
        return self.is_finished and bool(self.list_values() or self.divergence)

    @property
    def divergence(self) -> str:
        """The text that replaces every value if a run diverged, else the empty string."""
        return describe_divergence([run.divergence_round for run in self.counted_runs])

    def find_cost(self, target: float) -> TargetCost | None:
        """Return the cost of an accuracy (0 to 1); None if no run reached it."""
        costs = [cost for run in self.runs if (cost := find_run_cost(run, target))]
        if not costs:
            return None
        rounds, sent = (statistics.fmean(column) for column in zip(*costs, strict=True))
        return TargetCost(rounds, sent, len(costs), len(self.runs))


def read_metric_summary(run: Digest, metric: Metric) -> dict[str, float] | None:
    """Return what the run's summary records of the metric on the test data."""
    return run.read_scores(metric)


def find_run_cost(run: Digest, target: float) -> tuple[int, int] | None:
    """Return rounds and bytes until a run's headline metric first reached a value; None if it did not."""
    curve, headline = run.curve, run.headline or ACCURACY
    for k, accuracy in enumerate(curve.get_column(headline.column) if headline.is_share else ()):
        if accuracy is not None and accuracy >= target - 5e-7:  # a digest's curve is rounded
            return curve.round[k], curve.bytes_down[k] + curve.bytes_up[k]
    return None


class AverageCurve(NamedTuple):
    """Mean and deviation over seeds, aligned with `round`; the deviation of a single value is None."""

    round: list[int]
    mean: dict[str, list[float | None]]
    deviation: dict[str, list[float | None]]


def average_curves(curves: Sequence[Curve]) -> AverageCurve:
    """Average curves at every round that at least one of them has."""
    positions: dict[int, list[tuple[Curve, int]]] = {}
    for curve in curves:
        for k, round in enumerate(curve.round):
            positions.setdefault(round, []).append((curve, k))
    rounds = sorted(positions)
    mean: dict[str, list[float | None]] = {}
    deviation: dict[str, list[float | None]] = {}
    others = tuple(dict.fromkeys(name for curve in curves for name in curve.scores))
    for name in _SCORED + others + _COUNTED:
        columns = [[_get_value(curve, name, k) for curve, k in positions[round]] for round in rounds]
        known = [[value for value in column if value is not None] for column in columns]
        mean[name] = [statistics.fmean(values) if values else None for values in known]
        if name not in _COUNTED:
            deviation[name] = [statistics.stdev(values) if len(values) > 1 else None for values in known]
    return AverageCurve(rounds, mean, deviation)


def _get_value(curve: Curve, name: str, k: int) -> float | None:
    """Return entry k of a column; None if the curve does not have the column."""
    column = curve.get_column(name)
    return column[k] if column else None
