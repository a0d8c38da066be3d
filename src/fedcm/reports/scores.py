"""The figures of runs as the terminal's tables show them, from their summaries."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedcm.reports.metric import ACCURACY, METRICS, Metric, choose_metric, write_averaged_rounds
from fedcm.reports.outcome import diverged_in, divergence
from fedcm.runs.folder import RunFolder
from fedcm.runs.summary import bring_up_to_date, is_up_to_date, read_points

Summary = Mapping[str, Any]
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def read_summary(folder: RunFolder) -> dict[str, Any] | None:
    """A run's summary with today's keys, whenever it was written."""
    summary = folder.read_summary()
    if summary is None or is_up_to_date(summary):
        return summary
    lines = folder.read_metrics()
    return bring_up_to_date(summary, read_points(lines, "test_accuracy"), read_points(lines, "test_loss"))


def metric_of(summaries: Iterable[Summary]) -> Metric:
    return choose_metric((summary.get("accuracy"), summary.get("test_losses")) for summary in summaries)


class Scores(NamedTuple):
    """Runs that differ in nothing but their seed."""

    metric: Metric
    seeds: tuple[dict[str, float], ...]  # as `fedcm.runs.summary.describe` has them; none where one diverged
    lost: str  # in words, where one did

    def values(self, key: str) -> list[float]:
        return [self.metric.scale * figures[key] for figures in self.seeds]

    def rank(self) -> float | None:
        """More is better, and equal where the figures are written alike; None without any."""
        values = self.values("mean_last")
        return self.metric.gain(float(self.metric.write(statistics.fmean(values)))) if values else None

    def averaged_rounds(self) -> set[int]:
        return {int(figures["mean_last_rounds"]) for figures in self.seeds}

    def write(self, key: str, unit: str = "") -> str:
        """Mean ± standard deviation; of one seed its value."""
        values = self.values(key)
        if not values:
            return "–"
        spread = f" ± {self.metric.write_deviation(statistics.stdev(values))}" if len(values) > 1 else ""
        return self.metric.write(statistics.fmean(values)) + spread + unit


def read_scores_of(summaries: Sequence[Summary], metric: Metric) -> Scores:
    lost = divergence([diverged_in(s.get("outcome", ""), s.get("rounds", 0)) for s in summaries])
    figures = [] if lost else [found for s in summaries if (found := s.get(metric.summary))]
    return Scores(metric, tuple(figures), lost)


def list_best(scores: Mapping[Any, Scores]) -> set[Any]:
    """Whose figure is the best of several; all of those that tie."""
    ranks = {name: rank for name, one in scores.items() if (rank := one.rank()) is not None}
    return {name for name, rank in ranks.items() if rank == max(ranks.values())} if len(ranks) > 1 else set()


def name_mean(scores: Iterable[Scores]) -> tuple[str, str]:
    """The heading of the column, and what it means.

    >>> one, other = ({"mean_last_rounds": 40},), ({"mean_last_rounds": 100},)
    >>> name_mean([Scores(ACCURACY, one, "")])
    ('mean₄₀', 'mean₄₀: mean of the last 40 rounds')
    >>> name_mean([Scores(ACCURACY, one, ""), Scores(ACCURACY, other, "")])
    ('meanₙ', 'meanₙ: mean of the last n rounds')
    """
    windows = {rounds for one in scores for rounds in one.averaged_rounds()}
    if len(windows) > 1:
        return "meanₙ", "meanₙ: mean of the last n rounds"
    heading = "mean" + "".join(map(str, windows)).translate(_SUBSCRIPTS)
    return heading, f"{heading}: {write_averaged_rounds(windows)}"


def describe_metrics(scores: Iterable[Scores]) -> str:
    """Which metrics a table shows, and in which direction they are better."""
    used = {one.metric for one in scores if one.seeds} or {ACCURACY}
    words = {
        metric: "accuracy in percent" if metric is ACCURACY else "test loss, lower is better" for metric in METRICS
    }
    return "; ".join(words[metric] for metric in METRICS if metric in used)
