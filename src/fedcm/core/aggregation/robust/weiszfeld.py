"""The geometric median by the smoothed Weiszfeld algorithm: the point with the least sum of distances.

    z ← Σ b_i r_i / Σ b_i,   b_i = 1 / max(ν, ‖z − r_i‖)

It begins at the median of every coordinate, which hostile reports cannot move far.

Pillutla, Kakade & Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing 2022.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from fedcm.core.aggregation.robust.coordinates import compute_median
from fedcm.core.aggregation.robust.rows import ReportRows
from fedcm.core.aggregation.robust.rule import Combined, RobustRule, check_count


@final
@dataclass(frozen=True)
class GeometricMedian(RobustRule):
    """The point with the least sum of distances to all reports."""

    iterations: int = 8  # of the Weiszfeld algorithm
    smoothing: float = 1e-6  # ν: distances below it count as this much
    bucketing: int = 1  # reports per bucket; the median is of the buckets' means

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, 1)
        if not self.smoothing > 0:
            raise ValueError(f"smoothing must be above 0, got {self.smoothing}")
        check_count("bucketing", self.bucketing, 1)

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the geometric median; see `RobustRule`."""
        centre = compute_median(rows)
        for _ in range(self.iterations):
            pulls = 1.0 / np.maximum(rows.compute_distances(centre), self.smoothing)
            centre = rows.mix(pulls / pulls.sum())
        return Combined(centre)
