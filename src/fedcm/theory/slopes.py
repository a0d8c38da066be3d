"""A slope on log-log axes, its 95 % interval by resampling replicates, and whether it is what was proven."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedcm.chance import Purpose, generator

RESAMPLES = 2000
TOLERANCE = 0.1  # in the exponent: what the logarithms that O hides, and lower-order terms, may make of it

Verdict = Literal["agrees", "faster than proven", "does not show", "nothing proven", "diverged"]


class Slope(NamedTuple):
    value: float
    low: float
    high: float


def fit(x: Sequence[float], replicates: Sequence[np.ndarray], seed: int = 0) -> Slope:
    """Least squares of log(mean error) against log x. Each point's replicates are drawn again by themselves."""
    draw = generator(seed, Purpose.RESAMPLING)
    means = [values[draw.integers(0, len(values), (RESAMPLES, len(values)))].mean(1) for values in replicates]
    again = _slopes(x, np.stack(means, axis=1))
    value = _slopes(x, np.array([[values.mean() for values in replicates]]))[0]
    low, high = np.quantile(again, [0.025, 0.975])
    return Slope(float(value), float(low), float(high))


def _slopes(x: Sequence[float], means: np.ndarray) -> np.ndarray:
    """(n,) of means (n, points)."""
    centred = np.log(np.asarray(x, float))
    centred -= centred.mean()
    return np.log(means) @ centred / (centred @ centred)


def judged(slope: Slope, proven: float | Literal["grows"] | None, with_log: float | None = None) -> Verdict:
    """Against a proven exponent, which is an upper bound, or the claim that the error grows at all.

    The exponent may lie anywhere between the proven one and the same with its logarithm.

    >>> judged(Slope(-0.95, -1.0, -0.9), -1.0), judged(Slope(-2.0, -2.1, -1.9), -1.0), judged(Slope(0, 0, 0), -1.0)
    ('agrees', 'faster than proven', 'does not show')
    """
    if not all(map(math.isfinite, slope)):
        return "diverged"
    if proven is None:
        return "nothing proven"
    if proven == "grows":
        return "agrees" if slope.low > 0 else "does not show"
    ends = [proven, proven if with_log is None else with_log]
    if slope.high < min(ends) - TOLERANCE:
        return "faster than proven"
    return "agrees" if slope.low <= max(ends) + TOLERANCE else "does not show"
