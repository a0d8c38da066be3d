"""The scores of runs in the terminal's tables, from the runs' summaries."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedcm.reports.metric import (
    ACCURACY,
    METRICS,
    Metric,
    choose_metric,
    describe_averaged_rounds,
    describe_divergence,
    find_divergence_round,
)

Summary = Mapping[str, Any]
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def choose_summary_metric(summaries: Iterable[Summary]) -> Metric:
    """Return the metric that all these summaries have."""
    return choose_metric((summary.get("accuracy"), summary.get("test_losses")) for summary in summaries)


class Scores(NamedTuple):
    """The scores of runs that differ only in their seed."""

    metric: Metric
    seeds: tuple[dict[str, float], ...]  # per run what `fedcm.runs.summary.describe` returns; empty if one diverged
    divergence: str  # text in place of the scores if a run diverged, else empty

    def list_values(self, key: str) -> list[float]:
        """Return the shown values, one per seed."""
        return [self.metric.scale * values[key] for values in self.seeds]

    def rank(self) -> float | None:
        """Return the mean as it is shown, such that more is better; None if there is none."""
        values = self.list_values("mean_last")
        return self.metric.to_gain(float(self.metric.format(statistics.fmean(values)))) if values else None

    def list_averaged_rounds(self) -> set[int]:
        """Return the numbers of last rounds that `mean_last` averages."""
        return {int(values["mean_last_rounds"]) for values in self.seeds}

    def format(self, key: str, unit: str = "") -> str:
        """Format mean ± standard deviation over the seeds; a single seed has its value only."""
        values = self.list_values(key)
        if not values:
            return "–"
        spread = f" ± {self.metric.format_deviation(statistics.stdev(values))}" if len(values) > 1 else ""
        return self.metric.format(statistics.fmean(values)) + spread + unit


def make_scores(summaries: Sequence[Summary], metric: Metric) -> Scores:
    """Make the scores of runs that differ only in their seed, from their summaries."""
    divergence = describe_divergence(
        [find_divergence_round(s.get("outcome", ""), s.get("rounds", 0)) for s in summaries]
    )
    seeds = [] if divergence else [values for s in summaries if (values := s.get(metric.summary))]
    return Scores(metric, tuple(seeds), divergence)


def list_best(scores: Mapping[Any, Scores]) -> set[Any]:
    """Return the keys of the best scores, several if they tie; none if there is nothing to compare."""
    ranks = {name: rank for name, one in scores.items() if (rank := one.rank()) is not None}
    return {name for name, rank in ranks.items() if rank == max(ranks.values())} if len(ranks) > 1 else set()


def name_mean_column(scores: Iterable[Scores]) -> tuple[str, str]:
    """Return the heading of the column of means, and what it means.

    >>> one, other = ({"mean_last_rounds": 40},), ({"mean_last_rounds": 100},)
    >>> name_mean_column([Scores(ACCURACY, one, "")])
    ('mean₄₀', 'mean₄₀: mean of the last 40 rounds')
    >>> name_mean_column([Scores(ACCURACY, one, ""), Scores(ACCURACY, other, "")])
    ('meanₙ', 'meanₙ: mean of the last n rounds')
    """
    windows = {rounds for one in scores for rounds in one.list_averaged_rounds()}
    if len(windows) > 1:
        return "meanₙ", "meanₙ: mean of the last n rounds"
    heading = "mean" + "".join(map(str, windows)).translate(_SUBSCRIPTS)
    return heading, f"{heading}: {describe_averaged_rounds(windows)}"


def describe_metrics(scores: Iterable[Scores]) -> str:
    """Describe which metrics a table shows, and in which direction they are better."""
    used = {one.metric for one in scores if one.seeds} or {ACCURACY}
    descriptions = {
        metric: "accuracy in percent" if metric is ACCURACY else "test loss, lower is better" for metric in METRICS
    }
    return "; ".join(descriptions[metric] for metric in METRICS if metric in used)
