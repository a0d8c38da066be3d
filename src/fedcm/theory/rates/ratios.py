"""FedAvg's error divided by FedCM's at the same points: above 1, momentum helps.

Both see the same cohorts and noise, so the interval resamples replicates in pairs and common chance cancels. They are
compared only where the server averages, as in practice: the proof's step sizes leave no room for drift.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedcm.rng import Purpose, make_generator
from fedcm.theory.rates.measurement import RateRow
from fedcm.theory.rates.slopes import RESAMPLES, compute_interval


class ErrorRatio(NamedTuple):
    """A ratio of mean errors with its 95 % interval."""

    value: float
    low: float
    high: float


class AlgorithmComparison(NamedTuple):
    """FedCM and FedAvg in one experiment."""

    fedcm: RateRow
    fedavg: RateRow

    @property
    def ratios(self) -> list[ErrorRatio]:
        """FedAvg's error divided by FedCM's at every point."""
        pairs = zip(self.fedavg.results, self.fedcm.results, strict=True)
        return [compute_ratio(fedavg.errors, fedcm.errors) for fedavg, fedcm in pairs]


def compare_algorithms(rows: Iterable[RateRow]) -> list[AlgorithmComparison]:
    """Compare FedAvg with FedCM in every experiment that has both and in which the server averages."""
    experiments: dict[str, dict[str, RateRow]] = {}
    for row in rows:
        if row.experiment.steps == "averaging":
            experiments.setdefault(row.experiment.name, {})[row.algorithm] = row
    both = [own for own in experiments.values() if {"fedcm", "fedavg"} <= set(own)]
    return [AlgorithmComparison(own["fedcm"], own["fedavg"]) for own in both]


def compute_ratio(above: np.ndarray, below: np.ndarray, seed: int = 0) -> ErrorRatio:
    """Return the ratio of two means over the same replicates, with its 95 % interval."""
    count = len(above)
    resampled = make_generator(seed, Purpose.RESAMPLING, round=1).integers(0, count, (RESAMPLES, count))
    with np.errstate(invalid="ignore"):  # diverged runs have no ratio
        ratios = above[resampled].mean(1) / below[resampled].mean(1)
        return ErrorRatio(float(above.mean() / below.mean()), *compute_interval(ratios, count))
