"""FedAvg's error over FedCM's at the same points: above 1, momentum helps.

Both see the same cohorts and noise, so an interval draws replicates again in pairs, and chance that hits both cancels.
They are compared only where the server averages, as in practice: the proof's steps leave no room for drift.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedcm.rng import Purpose, make_generator
from fedcm.theory.rates.measure import Row
from fedcm.theory.rates.slopes import RESAMPLES, interval


class Ratio(NamedTuple):
    value: float
    low: float
    high: float


class Comparison(NamedTuple):
    """Of one experiment."""

    fedcm: Row
    fedavg: Row

    @property
    def ratios(self) -> list[Ratio]:
        """Point by point."""
        pairs = zip(self.fedavg.found, self.fedcm.found, strict=True)
        return [compute_ratio(above.errors, below.errors) for above, below in pairs]


def compare(rows: Iterable[Row]) -> list[Comparison]:
    """The experiments in which both were measured and the server averages, in their order."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.experiment.steps == "averaging":
            found.setdefault(row.experiment.name, {})[row.algorithm] = row
    return [Comparison(own["fedcm"], own["fedavg"]) for own in found.values() if {"fedcm", "fedavg"} <= set(own)]


def compute_ratio(above: np.ndarray, below: np.ndarray, seed: int = 0) -> Ratio:
    """The ratio of two means over the same replicates, with its 95 % interval."""
    count = len(above)
    drawn = make_generator(seed, Purpose.RESAMPLING, round=1).integers(0, count, (RESAMPLES, count))
    with np.errstate(invalid="ignore"):  # of what diverged there is no ratio
        again = above[drawn].mean(1) / below[drawn].mean(1)
        return Ratio(float(above.mean() / below.mean()), *interval(again, count))
