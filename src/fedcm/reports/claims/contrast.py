"""Differences between entries, with their uncertainty over seeds.

A contrast is Σ sign·mean over two or more entries. If all entries were run with the same seeds, the difference is taken
seed by seed (Student's interval): equal seeds share their split, cohorts and initial model, and the effect of those
cancels. Otherwise the interval uses each entry's own variance (Welch's interval). A single seed has no interval. Two
seeds have an interval, but it is never treated as sure: accuracies count whole examples, so two differences are often
equal by chance, and the interval is then a point.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fedcm.reports.metric import ACCURACY, LOSS, Metric  # noqa: F401 - LOSS is for the example
from fedcm.system.formatting import format_signed

_LEVEL = 0.95
_MIN_SEEDS = 3  # on every side, for a difference to be sure
_TIE = 0.005  # points that are shown as 0.00; for a loss, percent of its size

SeedValues = Mapping[int, float]  # by seed; infinite if the run diverged


@final
@dataclass(frozen=True)
class Contrast:
    """How much better one side is than the other."""

    difference: float  # more is better; infinite if only one side diverged, NaN if both did
    error: float | None  # standard error; None if it is unknown
    degrees_of_freedom: float  # degrees of freedom of the error
    seeds: str  # describes the seeds that the interval uses
    resolution: float = _TIE
    has_few_seeds: bool = False  # too few for a sure difference, whatever the interval

    @property
    def is_above(self) -> bool:
        """Whether the difference is positive and not a tie."""
        return self.difference > self.resolution

    def interval(self, comparisons: int = 1) -> tuple[float, float] | None:
        """Return the 95 % interval, widened for the number of comparisons (Bonferroni); None if there is none."""
        if self.error is None:
            return None
        from scipy.special import stdtrit  # slow to import, and a table of single runs has no intervals

        reach = float(stdtrit(self.degrees_of_freedom, 1 - (1 - _LEVEL) / comparisons / 2)) * self.error
        return self.difference - reach, self.difference + reach

    def is_significantly_above(self, comparisons: int = 1) -> bool:
        """Return whether the difference is positive beyond the uncertainty."""
        return not self.has_few_seeds and self.excludes_zero(comparisons) and self.is_above

    def is_significantly_below(self, comparisons: int = 1) -> bool:
        """Return whether the difference is negative beyond the uncertainty."""
        below = self.difference < -self.resolution
        return not self.has_few_seeds and self.excludes_zero(comparisons) and below

    def excludes_zero(self, comparisons: int = 1) -> bool:
        """Return whether the interval excludes 0."""
        ends = self.interval(comparisons)
        return ends is not None and (ends[0] > 0 or ends[1] < 0)


def compare(parts: Sequence[tuple[int, SeedValues]], relative: bool = False) -> Contrast:
    """Return the contrast Σ sign·mean.

    Args:
        parts: For each entry its sign and its values by seed.
        relative: Whether a tie is a share of the values' size, as for losses, instead of 0.005.
    """
    total = sum(sign * statistics.fmean(values.values()) for sign, values in parts)
    counts = [len(values) for _, values in parts]
    paired = len({frozenset(values) for _, values in parts}) == 1
    seeds = _describe_seeds(counts, paired)
    if not math.isfinite(total):
        return Contrast(total, 0.0 if _is_certain(parts) else None, math.inf, seeds, has_few_seeds=min(counts) < 2)
    size = max(abs(statistics.fmean(values.values())) for _, values in parts)
    resolution = _TIE / 100 * size if relative else _TIE
    has_few_seeds = min(counts) < _MIN_SEEDS
    if min(counts) < 2:
        return Contrast(total, None, math.nan, seeds, resolution, has_few_seeds)
    if paired:
        by_seed = [sum(sign * values[seed] for sign, values in parts) for seed in parts[0][1]]
        error = statistics.stdev(by_seed) / math.sqrt(len(by_seed))
        return Contrast(total, error, len(by_seed) - 1, seeds, resolution, has_few_seeds)
    shares = [statistics.variance(values.values()) / len(values) for _, values in parts]
    variance = math.fsum(shares)
    if variance == 0:
        return Contrast(total, 0.0, min(counts) - 1, seeds, resolution, has_few_seeds)
    degrees_of_freedom = variance**2 / math.fsum(share**2 / (n - 1) for share, n in zip(shares, counts, strict=True))
    return Contrast(total, math.sqrt(variance), degrees_of_freedom, seeds, resolution, has_few_seeds)


def format_difference(contrast: Contrast, metric: Metric = ACCURACY, comparisons: int = 1) -> str:
    """Format a difference with its interval and seeds; the empty string if a side diverged.

    >>> format_difference(Contrast(1.5, None, 0, "one seed"))
    '+1.50 points (one seed)'
    >>> format_difference(Contrast(-2.0, 1.0, 1e9, "4 seeds"), LOSS)
    'higher by 2 (95 % interval 0.04 to 3.96; 4 seeds)'
    """
    if not math.isfinite(contrast.difference):
        return ""
    ends = contrast.interval(comparisons)
    if metric.is_share:
        digits = "{:.2f}"
    else:
        digits = "{:.3g}"
        if ends and contrast.difference < 0:  # the text gives how much worse the value is
            ends = -ends[1], -ends[0]
    interval = f"95 % interval {' to '.join(map(digits.format, ends))}; ".replace("-", "−") if ends else ""
    return f"{format_size(contrast, metric)} ({interval}{contrast.seeds})"


def format_size(contrast: Contrast, metric: Metric = ACCURACY) -> str:
    """Format a difference without its interval; the empty string if a side diverged."""
    if not math.isfinite(contrast.difference):
        return ""
    if metric.is_share:
        return f"{format_signed(contrast.difference)} points"
    is_higher = (contrast.difference >= 0) == metric.higher_is_better
    return f"{'higher' if is_higher else 'lower'} by {abs(contrast.difference):.3g}"


def _is_certain(parts: Sequence[tuple[int, SeedValues]]) -> bool:
    """Return whether each side has two seeds or more, and either all or none of them diverged."""
    diverged = [[math.isinf(value) for value in values.values()] for _, values in parts]
    return all(len(runs) > 1 and (all(runs) or not any(runs)) for runs in diverged)


def _describe_seeds(counts: Sequence[int], paired: bool) -> str:
    """Describe which seeds an interval uses.

    >>> _describe_seeds([3, 3], True), _describe_seeds([3, 2], False), _describe_seeds([3, 1], False)
    ('paired over 3 seeds', '3 and 2 seeds', 'one side has one seed')
    """
    if max(counts) == 1:
        return "one seed"
    if min(counts) == 1:
        return "one side has one seed"
    return f"paired over {counts[0]} seeds" if paired else f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} seeds"
