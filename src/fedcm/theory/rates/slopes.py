"""Fit a slope on log-log axes, with a 95 % interval from resampled replicates, and judge it against the proven one.

With few replicates, quantiles of resampled means are too close together: they lack a factor √(n/(n − 1)) and Student's
tails. Taking the quantile Φ(−√(n/(n − 1))·t) instead of 2.5 % corrects both.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator

RESAMPLES = 2000
TOLERANCE = 0.1  # in the exponent: allows for logarithms hidden in O and for lower-order terms

Verdict = Literal["agrees", "faster than proven", "does not show", "cannot tell", "nothing proven", "diverged"]


class Slope(NamedTuple):
    """An exponent with its 95 % interval."""

    value: float
    low: float
    high: float


def fit_slope(x: Sequence[float], replicates: Sequence[np.ndarray], seed: int = 0) -> Slope:
    """Fit log(mean error) against log x by least squares; the interval resamples each point's replicates separately.

    Raises:
        UserError: If a point has fewer than 2 replicates.
    """
    fewest = min(map(len, replicates))
    if fewest < 2:
        raise UserError(f"a slope's interval needs at least 2 replicates per point, got {fewest}; measure more")
    generator = make_generator(seed, Purpose.RESAMPLING)
    means = [values[generator.integers(0, len(values), (RESAMPLES, len(values)))].mean(1) for values in replicates]
    slopes = _fit_slopes(x, np.stack(means, axis=1))
    return Slope(fit_exponent(x, [values.mean() for values in replicates]), *compute_interval(slopes, fewest))


def compute_interval(resampled: np.ndarray, replicates: int) -> tuple[float, float]:
    """Return the ends of a 95 % interval.

    Args:
        resampled: The statistic, computed on every resample.
        replicates: The number of replicates in a resample.
    """
    tail = NormalDist().cdf(-math.sqrt(replicates / (replicates - 1)) * compute_student_quantile(replicates - 1))
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def fit_exponent(x: Sequence[float], errors: Sequence[float]) -> float:
    """Fit the exponent of a power law.

    >>> round(fit_exponent([1, 2, 4], [8.0, 4.0, 2.0]), 6)
    -1.0
    """
    return float(_fit_slopes(x, np.asarray([errors], float))[0])


def _fit_slopes(x: Sequence[float], means: np.ndarray) -> np.ndarray:
    """Fit one slope per row of means (n, points)."""
    centred = np.log(np.asarray(x, float))
    centred -= centred.mean()
    with np.errstate(invalid="ignore"):  # diverged runs have no slope; `judge` reports them
        return np.log(means) @ centred / (centred @ centred)


def compute_student_quantile(degrees: int) -> float:
    """Return Student's 97.5 % quantile.

    It uses the first terms of the expansion around the normal quantile, exact to 0.01 from 7 degrees of freedom.

    >>> round(compute_student_quantile(11), 2)
    2.2
    """
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def judge(slope: Slope, proven: float | Literal["grows"] | None, log_exponent: float | None = None) -> Verdict:
    """Judge a slope against a proven exponent, which is an upper bound, or against the claim that the error grows.

    The band of agreement reaches from the proven exponent to `log_exponent`, the same with its logarithm, plus
    `TOLERANCE` on both sides. An interval entirely outside the band disagrees. To agree, the exponent must be in the
    band and its interval no wider than the band; otherwise the data cannot tell.

    >>> judge(Slope(-0.95, -1.0, -0.9), -1.0), judge(Slope(-2.0, -2.1, -1.9), -1.0), judge(Slope(0, 0, 0), -1.0)
    ('agrees', 'faster than proven', 'does not show')
    >>> judge(Slope(0.0, -1.0, 1.0), -1.0)
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
    ends = [proven, proven if log_exponent is None else log_exponent]
    low, high = min(ends) - TOLERANCE, max(ends) + TOLERANCE
    if slope.high < low:
        return "faster than proven"
    if slope.low > high:
        return "does not show"
    return "agrees" if low <= slope.value <= high and width <= high - low else "cannot tell"
