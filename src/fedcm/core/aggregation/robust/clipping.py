"""Means of shortened reports.

    clipped            mean of r_i · min(1, bound / ‖r_i‖)
    centred clipping   v ← v + mean of (r_i − v) · min(1, τ / ‖r_i − v‖), a few times

Karimireddy, He & Jaggi, "Learning from History for Byzantine Robust Optimization", ICML 2021. They start at the
aggregate of the previous round. FedCM's server knows a better guess of every report, Δ: honest reports are
(1−α)Δ + α·(mean gradient), so their distance from Δ is small if α is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from torch import Tensor

from fedcm.core.aggregation.robust.coordinates import compute_median
from fedcm.core.aggregation.robust.rows import ReportRows
from fedcm.core.aggregation.robust.rule import (
    Combined,
    RobustRule,
    check_count,
    check_radius,
    choose_radius,
    compute_factors,
)


@final
@dataclass(frozen=True)
class Clipped(RobustRule):
    """The mean of reports that are shortened to a largest norm."""

    bound: float | None = None  # largest norm of a report
    ratio: float | None = None  # the same, in units of the median norm of the round's reports; 1 without a bound
    bucketing: int = 1  # reports per bucket; buckets' means are clipped

    allows_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_radius("bound", self.bound, self.ratio)
        check_count("bucketing", self.bucketing, 1)

    @property
    def needs_table(self) -> bool:
        """Whether all reports must be in memory; not with a fixed bound, which clips each report as it arrives."""
        return self.bound is None or self.bucketing > 1

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the mean of the clipped rows; see `RobustRule`."""
        norms = rows.compute_distances()
        factors = compute_factors(choose_radius(self.bound, self.ratio, norms), norms)
        return Combined(rows.mix(factors * weights / weights.sum()), clipped=int((factors < 1).sum()))


@final
@dataclass(frozen=True)
class CentredClipping(RobustRule):
    """A centre plus the mean of the clipped differences from it; the centre is Δ for FedCM."""

    radius: float | None = None  # largest distance τ from the centre
    ratio: float | None = None  # the same, in units of the median distance; 1 without a radius
    iterations: int = 3  # the result of one is the centre of the next
    bucketing: int = 1  # reports per bucket; differences of the buckets' means are clipped

    starts_at_guess: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_radius("radius", self.radius, self.ratio)
        check_count("iterations", self.iterations, 1)
        check_count("bucketing", self.bucketing, 1)

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the last centre; see `RobustRule`."""
        centre, clipped = list(guess) if guess is not None else compute_median(rows), 0
        for _ in range(self.iterations):
            distances = rows.compute_distances(centre)
            factors = compute_factors(choose_radius(self.radius, self.ratio, distances), distances)
            shares, clipped = factors / rows.count, int((factors < 1).sum())
            stay = 1.0 - float(shares.sum())  # v + Σ s_i (r_i − v) = (1 − Σ s_i) v + Σ s_i r_i
            centre = [stay * own + moved for own, moved in zip(centre, rows.mix(shares), strict=True)]
        return Combined(centre, clipped=clipped)
