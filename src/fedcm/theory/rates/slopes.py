"""A slope on log-log axes, its 95 % interval by resampling replicates, and whether it is what was proven.

Quantiles of resampled means are too near together where replicates are few: they lack a factor √(n/(n − 1)) and
Student's tails. So those of Φ(−√(n/(n − 1))·t) are taken instead of 2.5 %, which makes up for both.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator

RESAMPLES = 2000
TOLERANCE = 0.1  # in the exponent: what the logarithms that O hides, and lower-order terms, may make of it

Verdict = Literal["agrees", "faster than proven", "does not show", "cannot tell", "nothing proven", "diverged"]


class Slope(NamedTuple):
    value: float
    low: float
    high: float


def fit(x: Sequence[float], replicates: Sequence[np.ndarray], seed: int = 0) -> Slope:
    """Least squares of log(mean error) against log x. Each point's replicates are drawn again by themselves."""
    fewest = min(map(len, replicates))
    if fewest < 2:
        raise UserError(f"the interval of a slope needs 2 replicates a point at least, got {fewest}; measure more")
    draw = make_generator(seed, Purpose.RESAMPLING)
    means = [values[draw.integers(0, len(values), (RESAMPLES, len(values)))].mean(1) for values in replicates]
    again = _slopes(x, np.stack(means, axis=1))
    return Slope(exponent(x, [values.mean() for values in replicates]), *interval(again, fewest))


def interval(again: np.ndarray, replicates: int) -> tuple[float, float]:
    """The ends of a 95 % interval, from what was computed of replicates drawn again, so many at a time."""
    tail = NormalDist().cdf(-math.sqrt(replicates / (replicates - 1)) * student_quantile(replicates - 1))
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(again, [tail, 1 - tail])
    return float(low), float(high)


def exponent(x: Sequence[float], errors: Sequence[float]) -> float:
    """
    >>> round(exponent([1, 2, 4], [8.0, 4.0, 2.0]), 6)
    -1.0
    """
    return float(_slopes(x, np.asarray([errors], float))[0])


def _slopes(x: Sequence[float], means: np.ndarray) -> np.ndarray:
    """(n,) of means (n, points)."""
    centred = np.log(np.asarray(x, float))
    centred -= centred.mean()
    with np.errstate(invalid="ignore"):  # what diverged has no slope, and `judged` says so
        return np.log(means) @ centred / (centred @ centred)


def student_quantile(degrees: int) -> float:
    """Of 97.5 %: the first terms of its expansion around the normal one, right to 0.01 from 7 degrees on.

    >>> round(student_quantile(11), 2)
    2.2
    """
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def judged(slope: Slope, proven: float | Literal["grows"] | None, with_log: float | None = None) -> Verdict:
    """Against a proven exponent, which is an upper bound, or the claim that the error grows at all.

    The exponent may lie anywhere between the proven one and the same with its logarithm, give or take `TOLERANCE`. An
    interval wholly outside of that band is told as such. To agree, the exponent must be in the band and its interval
    be no wider than the band: what is known too badly to disagree does not agree either.

    >>> judged(Slope(-0.95, -1.0, -0.9), -1.0), judged(Slope(-2.0, -2.1, -1.9), -1.0), judged(Slope(0, 0, 0), -1.0)
    ('agrees', 'faster than proven', 'does not show')
    >>> judged(Slope(0.0, -1.0, 1.0), -1.0)
    'cannot tell'
    """
    if not all(map(math.isfinite, slope)):
        return "diverged"
    if proven is None:
        return "nothing proven"
    width = slope.high - slope.low
    if proven == "grows":
        if slope.low > 0:
            return "agrees"
        return "does not show" if slope.high <= 0 or width <= 2 * TOLERANCE else "cannot tell"
    ends = [proven, proven if with_log is None else with_log]
    low, high = min(ends) - TOLERANCE, max(ends) + TOLERANCE
    if slope.high < low:
        return "faster than proven"
    if slope.low > high:
        return "does not show"
    return "agrees" if low <= slope.value <= high and width <= high - low else "cannot tell"
