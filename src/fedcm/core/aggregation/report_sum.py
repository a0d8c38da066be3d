"""The reports of one round while they are collected.

Every worker adds the reports of its own clients. Then the workers add their integers, and each computes the same mean.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from torch import Tensor

from fedcm.core.exact_mean import ExactMean


class ReportSum(ABC):
    """Collects the reports of one round and computes their mean."""

    @property
    @abstractmethod
    def sum(self) -> ExactMean[Any]:
        """The exact sum, whose integers the workers add."""

    expected_size: float | None = None  # what the sum is divided by, if not the number of reports

    @property
    def rows(self) -> list[Tensor]:
        """Further integers that the workers add: every row is 0 in all workers but one. Default: none."""
        return []

    @abstractmethod
    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the reports of a stack of clients: one row of each field for each client.

        Raises:
            OutOfRange: If an entry is not finite or too large; then nothing is added.
        """

    @abstractmethod
    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the mean report for the server's update.

        Args:
            clients: The clients that reported, sorted.
            weights: The weight of each.
        """

    def describe(self) -> Mapping[str, Any]:
        """Return what metrics.jsonl records of the mean; called after `compute`. Default: nothing."""
        return {}


@final
class PlainSum(ReportSum):
    """The weighted mean of the reports, in any order with the same bits."""

    def __init__(self, empty: ExactMean[Any]) -> None:
        """Start with an empty sum."""
        self._sum = empty

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum."""
        return self._sum

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the reports of a stack of clients; see `ReportSum`."""
        self._sum.add_stack(clients, report, weights)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the weighted mean."""
        return self._sum.compute(math.fsum(weights))
