"""All reports of one round in a table, for means that need to see every report.

Its memory grows with the size of the cohort times the number of parameters.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.aggregation.report_sum import ReportSum
from fedcm.core.exact_mean import ExactMean


@final
class ReportTable(ReportSum):
    """All reports of a round, one row for each client of the cohort, and their exact mean."""

    def __init__(self, empty: ExactMean[Any], cohort: np.ndarray) -> None:
        """Start an empty table.

        Args:
            empty: An empty sum of these reports.
            cohort: The clients, sorted; each has one row, in this order.
        """
        self._sum = empty
        self._positions = {client: row for row, client in enumerate(cohort.tolist())}
        self.fields = [field.new_zeros((len(cohort), field.numel())) for field in empty.template]

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum of the reports."""
        return self._sum

    @property
    def rows(self) -> list[Tensor]:
        """The bits of the table as integers, so that adding them over the workers is exact."""
        return [field.view(torch.int32 if field.element_size() == 4 else torch.int64) for field in self.fields]

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the reports of a stack of clients; see `ReportSum`."""
        self._sum.add_stack(clients, report, weights)
        positions = [self._positions[client] for client in clients]
        for own, field in zip(self.fields, report, strict=True):
            own[positions] = field.reshape(len(clients), -1)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the weighted mean of all reports."""
        return self._sum.compute(math.fsum(weights))

    def select(self, clients: np.ndarray) -> list[Tensor]:
        """Return the rows of these clients, in this order, for each field."""
        positions = [self._positions[client] for client in clients.tolist()]
        if positions == list(range(len(self._positions))):
            return self.fields
        return [field[positions] for field in self.fields]

    def mix(self, weights: np.ndarray) -> Any:
        """Return the mean of the reports with these weights, one for each row."""
        chosen = np.flatnonzero(weights)
        fields = []
        for rows, like in zip(self.fields, self._sum.template, strict=True):
            own = torch.from_numpy(weights[chosen]).to(rows)
            fields.append((own @ rows[chosen]).view(like.shape))
        return type(self._sum.template)(*fields)
