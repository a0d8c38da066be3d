"""One side of a comparison minus the other: points, 95 % interval, effect size, and how the seeds are paired."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedcm.reports.claims.contrast import Contrast, compare
from fedcm.reports.entry import Entry
from fedcm.system.formatting import format_signed
from results_page.cells import NOT_PLANNED, PAIR_MARK, PAIR_NOTE, name_cpu


class Difference(NamedTuple):
    """Two sides of a comparison; the lead is that of the first."""

    own: Entry
    other: Entry

    @property
    def contrast(self) -> Contrast:
        """The first side minus the other, in points."""
        return compare([(1, self.own.list_gains()), (-1, self.other.list_gains())])

    @property
    def cohens_d(self) -> float | None:
        """The difference in pooled standard deviations; None if a side has fewer than two seeds or diverged."""
        return compute_cohens_d(self.own.list_values(), self.other.list_values())

    @property
    def has_diverged(self) -> bool:
        """Whether a run of either side diverged."""
        return bool(self.own.divergence or self.other.divergence)

    @property
    def is_across_cpus(self) -> bool:
        """Whether the two runs of a seed used different kinds of CPU."""
        own, other = ({run.seed: name_cpu(run) for run in entry.counted_runs} for entry in self)
        return any(own[seed] != other[seed] for seed in own.keys() & other.keys())


def compute_cohens_d(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the difference of means in pooled standard deviations; None if it is not defined.

    >>> compute_cohens_d([3.0, 5.0], [1.0, 3.0])
    1.414213562373095
    """
    if min(len(first), len(second)) < 2:
        return None
    weights = len(first) - 1, len(second) - 1
    variance = weights[0] * statistics.variance(first) + weights[1] * statistics.variance(second)
    deviation = math.sqrt(variance / sum(weights))
    return (statistics.fmean(first) - statistics.fmean(second)) / deviation if deviation else None


def format_lead(difference: Difference) -> str:
    """Format FedCM's lead in points, or say which side diverged."""
    points = difference.contrast.difference
    if math.isfinite(points):
        return format_signed(points)
    return "both diverged" if math.isnan(points) else f"{'other' if points > 0 else 'FedCM'} diverged"


def format_size(difference: Difference) -> str:
    """Format Cohen's d."""
    size = difference.cohens_d
    return NOT_PLANNED if size is None else format_signed(size).removeprefix("+")


def describe_seeds(difference: Difference) -> str:
    """Describe the seeds of both sides, with a mark if their runs used different kinds of CPU."""
    counts = [len(entry.counted_runs) for entry in difference]
    text = difference.contrast.seeds if min(counts) > 1 or max(counts) == 1 else f"{counts[0]} and {counts[1]}"
    return mark_pair(text, difference)


def mark_pair(text: str, difference: Difference) -> str:
    """Add the mark of a pair whose runs used different kinds of CPU."""
    return f"{text} {PAIR_MARK}" if difference.is_across_cpus else text


def explain_pairs(differences: Iterable[Difference]) -> str:
    """Return the sentence about that mark; empty if no difference has it."""
    return PAIR_NOTE if any(one.is_across_cpus for one in differences) else ""
