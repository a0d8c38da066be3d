"""Means of selected reports: those that are close to their neighbours.

    score_i   Σ of the squared distances from report i to its n − f − 2 nearest others
    Krum      the mean of the `keep` reports with the lowest scores
    Bulyan    n − 2f reports, selected one by one by Krum; then, of every coordinate, the mean of the n − 4f values
              that are closest to their median

Blanchard, El Mhamdi, Guerraoui & Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017. El Mhamdi, Guerraoui & Rouault, "The Hidden Vulnerability of Distributed Learning in Byzantium", ICML
2018.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from fedcm.core.aggregation.robust.coordinates import map_sorted
from fedcm.core.aggregation.robust.rows import ReportRows
from fedcm.core.aggregation.robust.rule import Combined, RobustRule, check_count


@final
@dataclass(frozen=True)
class Krum(RobustRule):
    """Krum: the report that is closest to its neighbours, or the mean of several such reports."""

    hostile: int  # f, the number of hostile reports in a round that it survives; a round needs 2f + 3 reports
    keep: int = 1  # m, the number of reports whose mean is taken; a round needs m + f, so that m honest ones exist
    bucketing: int = 1  # reports per bucket; Krum selects buckets

    def __post_init__(self) -> None:
        check_count("hostile", self.hostile, 0)
        check_count("keep", self.keep, 1)
        check_count("bucketing", self.bucketing, 1)

    @property
    def least_rows(self) -> int:
        """2f + 3, and at least m + f: with fewer, fewer than m reports may be honest."""
        return max(2 * self.hostile + 3, self.keep + self.hostile)

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the mean of the selected rows; see `RobustRule`."""
        kept = np.sort(rank_rows(rows.compute_pairwise_squares(), self.hostile)[: self.keep])
        shares = np.zeros(rows.count)
        shares[kept] = 1.0 / len(kept)
        return Combined(rows.mix(shares), kept=kept.tolist())


@final
@dataclass(frozen=True)
class Bulyan(RobustRule):
    """Bulyan: reports selected by Krum, then a trimmed mean around the median of every coordinate."""

    hostile: int  # f, the number of hostile reports in a round that it survives; a round needs 4f + 3 reports
    bucketing: int = 1  # reports per bucket; Bulyan selects buckets

    def __post_init__(self) -> None:
        check_count("hostile", self.hostile, 0)
        check_count("bucketing", self.bucketing, 1)

    @property
    def least_rows(self) -> int:
        """4f + 3."""
        return 4 * self.hostile + 3

    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the mean around the median of the selected rows; see `RobustRule`."""
        squares, left = rows.compute_pairwise_squares(), list(range(rows.count))
        while len(left) > 2 * self.hostile:
            left.pop(int(rank_rows(squares[np.ix_(left, left)], self.hostile)[0]))
        kept = [row for row in range(rows.count) if row not in left]
        middle, low, high = rows.count - 4 * self.hostile, (len(kept) - 1) // 2, len(kept) // 2

        def average_middle(values: Tensor) -> Tensor:
            apart = (values - (values[low] + values[high]) / 2).abs()
            return values.gather(0, apart.argsort(dim=0, stable=True)[:middle]).mean(0)

        return Combined(map_sorted(rows.select(kept), average_middle), kept=kept)


def rank_rows(squares: np.ndarray, hostile: int) -> np.ndarray:
    """Return the rows by their score, the lowest first, given the squared distances of all pairs.

    Two rows that are each other's nearest have equal scores if one neighbour counts. The more
    central one is first then.
    """
    count = len(squares)
    others = np.sort(squares[~np.eye(count, dtype=bool)].reshape(count, count - 1), axis=1)
    scores = others[:, : max(count - hostile - 2, 1)].sum(1)
    return np.lexsort((others.sum(1), scores))
