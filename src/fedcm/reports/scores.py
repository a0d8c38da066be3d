"""The scores of runs in the terminal's tables, from the runs' summaries."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedcm.reports.metric import (
    ACCURACY,
    Metric,
    choose_metric,
    describe_averaged_rounds,
    describe_divergence,
    find_divergence_round,
    find_headline,
    read_scores,
    read_validation_scores,
)

Summary = Mapping[str, Any]
CLIENT_COLUMNS = {"mean": "clients", "std": "± clients", "p10": "worst 10%", "worst": "worst client"}  # with headings
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def choose_summary_metric(summaries: Iterable[Summary]) -> Metric:
    """Return the metric that all these summaries have."""
    return choose_metric((find_headline(summary), summary.get("test_losses")) for summary in summaries)


class Scores(NamedTuple):
    """The scores of runs that differ only in their seed."""

    metric: Metric
    seeds: tuple[dict[str, float], ...]  # per run what `fedcm.runs.summary.describe` returns; empty if one diverged
    divergence: str  # text in place of the scores if a run diverged, else empty
    validation: tuple[dict[str, float], ...] = ()  # the same metric on validation data, if all runs have them
    clients: tuple[dict[str, Any], ...] = ()  # per run the distribution over clients in its last evaluation

    def list_values(self, key: str) -> list[float]:
        """Return the shown values, one per seed."""
        return [self.metric.scale * values[key] for values in self.seeds]

    def format_clients(self, unit: str = "") -> list[str]:
        """Format mean, standard deviation, worst tenth and worst over clients, each as a mean over seeds."""
        texts = []
        for key in CLIENT_COLUMNS:
            values = [self.metric.scale * one[key] for one in self.clients if one.get(key) is not None]
            texts.append(self.metric.format(statistics.fmean(values)) + unit if values else "–")
        return texts

    def rank(self, on_validation: bool = False) -> float | None:
        """Return the mean as it is shown, such that more is better; None if there is none."""
        scores = self.validation if on_validation else self.seeds
        values = [self.metric.scale * one["mean_last"] for one in scores]
        return self.metric.to_gain(float(self.metric.format(statistics.fmean(values)))) if values else None

    def list_averaged_rounds(self) -> set[int]:
        """Return the numbers of last rounds that `mean_last` averages."""
        return {int(values["mean_last_rounds"]) for values in self.seeds}

    def format_validation(self, unit: str = "") -> str:
        """Format the mean of the last rounds on the validation data."""
        return self._replace(seeds=self.validation).format("mean_last", unit)

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
    seeds = [] if divergence else [values for s in summaries if (values := read_scores(s, metric))]
    validation = [] if divergence else [values for s in summaries if (values := read_validation_scores(s, metric))]
    complete = len(validation) == len(summaries)
    clients = [] if divergence else [s["clients"] for s in summaries if isinstance(s.get("clients"), dict)]
    alike = [one for one in clients if one.get("metric") == metric.name]
    return Scores(metric, tuple(seeds), divergence, tuple(validation) if complete else (), tuple(alike))


def list_best(scores: Mapping[Any, Scores]) -> set[Any]:
    """Return the keys of the best scores, several if they tie; none if there is nothing to compare.

    The best are chosen on validation data if all of them have such scores, so that the test data choose nothing.
    """
    validated = has_validation(scores.values())
    ranks = {name: rank for name, one in scores.items() if (rank := one.rank(on_validation=validated)) is not None}
    return {name for name, rank in ranks.items() if rank == max(ranks.values())} if len(ranks) > 1 else set()


def list_client_headings(scores: Iterable[Scores]) -> list[str]:
    """Return the headings of the columns about single clients; none if no run evaluated them."""
    return list(CLIENT_COLUMNS.values()) if any(one.clients for one in scores) else []


def has_validation(scores: Iterable[Scores]) -> bool:
    """Return whether all scores that did not diverge have scores on validation data."""
    remaining = [one for one in scores if not one.divergence]
    return bool(remaining) and all(one.validation for one in remaining)


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
    used = dict.fromkeys(one.metric for one in scores if one.seeds) or {ACCURACY: None}
    ordered = sorted(used, key=lambda metric: not metric.is_share)
    return "; ".join(metric.format_direction() for metric in ordered)
