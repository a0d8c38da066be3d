"""Means of every coordinate by itself.

Yin, Chen, Kannan & Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from fedcm.core.aggregation.robust.rows import ReportRows
from fedcm.core.aggregation.robust.rule import Combined, RobustRule, check_count


@final
@dataclass(frozen=True)
class Median(RobustRule):
    """The median of every coordinate; of an even number of reports, the mean of the two in the middle."""

    bucketing: int = 1  # reports per bucket; the median is over the buckets' means

    def __post_init__(self) -> None:
        check_count("bucketing", self.bucketing, 1)

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the median; see `RobustRule`."""
        return Combined(compute_median(rows))


@final
@dataclass(frozen=True)
class Trimmed(RobustRule):
    """The trimmed mean: of every coordinate, the largest and the smallest values are left out."""

    share: float = 0.2  # share of the reports that is left out at either end, below 0.5
    bucketing: int = 1  # reports per bucket; the mean is over the buckets' means

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ValueError(f"share must be at least 0 and below 0.5, got {self.share}")
        check_count("bucketing", self.bucketing, 1)

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the trimmed mean; see `RobustRule`."""
        cut = math.floor(self.share * rows.count + 1e-9)  # 0.2 of 15 is 3, although 0.2 · 15 may round below it
        return Combined(map_sorted(rows, lambda values: values[cut : rows.count - cut].mean(0)))


def compute_median(rows: ReportRows) -> list[Tensor]:
    """Return the median of every coordinate, for each field."""
    low, high = (rows.count - 1) // 2, rows.count // 2
    return map_sorted(rows, lambda values: (values[low] + values[high]) / 2)


def map_sorted(rows: ReportRows, reduce: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return, for each field, a function of the sorted values (rows, columns) of its coordinates."""
    result = rows.make_zeros()
    for block in rows.iterate_blocks():
        result[block.field][block.columns] = reduce(block.values.sort(dim=0).values)
    return result
