"""Differences between runs, with what the seeds say about their uncertainty.

A contrast is Σ sign·mean over two or more entries. Where all of them were run with the same seeds it is taken seed by
seed (Student's interval over these differences): equal seeds share their split, cohorts and initial model, and what
those decide cancels. Otherwise each entry's own spread counts (Welch's interval). One seed says nothing about spread,
so there is no interval then. Two seeds have an interval, but nothing is sure by it: accuracies are counted in whole
examples, so two differences are often equal by chance, and the interval is then a point.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from scipy.special import stdtrit

_LEVEL = 0.95
_SURE = 3  # seeds on every side, to be sure of anything
_SHOWN = 0.005  # what rounds to 0.00 is a tie; of a loss, the same share of it in percent

Values = Mapping[int, float]  # by seed; infinite where the run of that seed diverged


@final
@dataclass(frozen=True)
class Contrast:
    """How much better one side is than another; more is better."""

    difference: float  # infinite where one side alone diverged, not a number where both did
    error: float | None  # standard error; None where there is no telling
    freedom: float  # degrees of it
    seeds: str  # in words: what the interval is from
    resolution: float = _SHOWN
    is_from_few: bool = False  # seeds: too few to be sure, whatever the interval

    @property
    def is_above(self) -> bool:
        """Is one side ahead, by more than a tie?"""
        return self.difference > self.resolution

    def interval(self, comparisons: int = 1) -> tuple[float, float] | None:
        """The 95 % interval; of several comparisons so wide that all of them hold at once (Bonferroni)."""
        if self.error is None:
            return None
        reach = float(stdtrit(self.freedom, 1 - (1 - _LEVEL) / comparisons / 2)) * self.error
        return self.difference - reach, self.difference + reach

    def is_surely_above(self, comparisons: int = 1) -> bool:
        return not self.is_from_few and self.is_clear_of_zero(comparisons) and self.is_above

    def is_surely_below(self, comparisons: int = 1) -> bool:
        below = self.difference < -self.resolution
        return not self.is_from_few and self.is_clear_of_zero(comparisons) and below

    def is_clear_of_zero(self, comparisons: int = 1) -> bool:
        """Does the interval exclude 0?"""
        found = self.interval(comparisons)
        return found is not None and (found[0] > 0 or found[1] < 0)


def contrast(parts: Sequence[tuple[int, Values]], relative: bool = False) -> Contrast:
    """Σ sign·mean of the parts (sign, values by seed). `relative`: a tie is a share of the values' size, as of a loss,
    instead of 0.005."""
    total = sum(sign * statistics.fmean(values.values()) for sign, values in parts)
    counts = [len(values) for _, values in parts]
    paired = len({frozenset(values) for _, values in parts}) == 1
    words = _describe_seeds(counts, paired)
    if not math.isfinite(total):
        return Contrast(total, 0.0 if _is_certain(parts) else None, math.inf, words)
    size = max(abs(statistics.fmean(values.values())) for _, values in parts)
    resolution = _SHOWN / 100 * size if relative else _SHOWN
    few = min(counts) < _SURE
    if min(counts) < 2:
        return Contrast(total, None, math.nan, words, resolution, few)
    if paired:
        by_seed = [sum(sign * values[seed] for sign, values in parts) for seed in parts[0][1]]
        error = statistics.stdev(by_seed) / math.sqrt(len(by_seed))
        return Contrast(total, error, len(by_seed) - 1, words, resolution, few)
    shares = [statistics.variance(values.values()) / len(values) for _, values in parts]
    variance = math.fsum(shares)
    if variance == 0:
        return Contrast(total, 0.0, min(counts) - 1, words, resolution, few)
    freedom = variance**2 / math.fsum(share**2 / (n - 1) for share, n in zip(shares, counts, strict=True))
    return Contrast(total, math.sqrt(variance), freedom, words, resolution, few)


def _is_certain(parts: Sequence[tuple[int, Values]]) -> bool:
    """Did the sides that diverged do so with every seed, of two or more each?"""
    lost = [[math.isinf(value) for value in values.values()] for _, values in parts]
    return all(len(runs) > 1 and (all(runs) or not any(runs)) for runs in lost)


def _describe_seeds(counts: Sequence[int], paired: bool) -> str:
    """
    >>> _describe_seeds([3, 3], True), _describe_seeds([3, 2], False), _describe_seeds([3, 1], False)
    ('paired over 3 seeds', '3 and 2 seeds', 'one seed in part')
    """
    if max(counts) == 1:
        return "one seed"
    if min(counts) == 1:
        return "one seed in part"
    return f"paired over {counts[0]} seeds" if paired else f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} seeds"
