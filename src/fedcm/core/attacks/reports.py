"""Changes the reports of hostile clients before they are averaged.

Where several reports are needed, all of them are in a table, which every worker completes; so a forged report has the
same bits on any number of workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.aggregation.aggregation import Aggregation
from fedcm.core.aggregation.report_sum import ReportSum
from fedcm.core.aggregation.report_table import ReportTable
from fedcm.core.aggregation.robust.rows import ReportRows
from fedcm.core.algorithm import Round
from fedcm.core.attacks.kinds import Attack, Backdoor, CollusionAttack, ReportAttack, Scaled
from fedcm.core.exact_mean import ExactMean
from fedcm.rng import Purpose, make_torch_seed


@final
@dataclass(frozen=True)
class AttackedMean:
    """An aggregation that gets false reports from hostile clients."""

    inner: Aggregation  # averages the reports
    attack: Attack
    hostile: frozenset[int]
    seed: int

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round; see `Aggregation`."""
        inner = self.inner.start_round(template, sent, cohort, round)
        if isinstance(self.attack, CollusionAttack):
            table = ReportTable(ExactMean(template, len(cohort)), cohort)
            return _CollusionSum(inner, self.hostile, self.attack, table)
        attack = Scaled(self.attack.clients, self.attack.boost) if isinstance(self.attack, Backdoor) else self.attack
        changed = attack if isinstance(attack, ReportAttack) else None
        return _AttackedSum(inner, self.hostile, changed, self.seed, round.index)


@final
class _AttackedSum(ReportSum):
    """Each hostile client changes its own report."""

    def __init__(
        self, inner: ReportSum, hostile: frozenset[int], attack: ReportAttack | None, seed: int, round: int
    ) -> None:
        self._inner = inner
        self._hostile = hostile
        self._attack = attack
        self._seed = seed
        self._round = round
        self._count = 0

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum of the changed reports."""
        return self._inner.sum

    @property
    def rows(self) -> list[Tensor]:
        """The rows of the inner sum."""
        return self._inner.rows

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the reports of a stack of clients, those of hostile clients changed; see `ReportSum`."""
        own = [row for row, client in enumerate(clients) if client in self._hostile]
        if own and self._attack is not None:
            fields = [field.reshape(len(clients), -1).clone() for field in report]
            for row in own:
                seed = make_torch_seed(self._seed, Purpose.ATTACK, self._round, clients[row])
                generator = torch.Generator().manual_seed(seed)
                changed = self._attack.change([field[row] for field in fields], generator)
                for field, value in zip(fields, changed, strict=True):
                    field[row] = value
            report = type(report)(*fields)
        self._inner.add_stack(clients, report, weights)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the mean of the inner sum."""
        self._count = count_hostile(clients, self._hostile)
        return self._inner.compute(clients, weights)

    def describe(self) -> Mapping[str, Any]:
        """Return the facts of the inner sum, and the number of hostile clients."""
        return {**self._inner.describe(), "hostile": self._count}


@final
class _CollusionSum(ReportSum):
    """All reports are collected first; then the hostile ones are replaced by one that is made from the honest ones."""

    def __init__(self, inner: ReportSum, hostile: frozenset[int], attack: CollusionAttack, table: ReportTable) -> None:
        self._inner = inner
        self._hostile = hostile
        self._attack = attack
        self._table = table
        self._count = 0

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum of the true reports; only its check of their range matters."""
        return self._table.sum

    @property
    def rows(self) -> list[Tensor]:
        """The bits of all reports."""
        return self._table.rows

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the true reports of a stack of clients; see `ReportSum`."""
        self._table.add_stack(clients, report, weights)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the mean that the inner sum makes of honest and forged reports."""
        self._count = count_hostile(clients, self._hostile)
        fields, template = self._table.select(clients), self.sum.template
        is_hostile = np.array([client in self._hostile for client in clients.tolist()])
        if 0 < self._count < len(clients):
            honest = ReportRows(fields, [[row] for row in np.flatnonzero(~is_hostile).tolist()])
            forged = self._attack.forge(honest, self._count)
            fields = [field.clone() for field in fields]
            for field, value in zip(fields, forged, strict=True):
                field[torch.from_numpy(is_hostile)] = value.to(field.dtype)
        for row, (client, weight) in enumerate(zip(clients.tolist(), weights.tolist(), strict=True)):
            pairs = zip(fields, template, strict=True)
            report = type(template)(*[field[row].reshape(1, *like.shape) for field, like in pairs])
            self._inner.add_stack([client], report, [weight])
        return self._inner.compute(clients, weights)

    def describe(self) -> Mapping[str, Any]:
        """Return the facts of the inner sum, and the number of hostile clients."""
        return {**self._inner.describe(), "hostile": self._count}


def count_hostile(clients: np.ndarray, hostile: frozenset[int]) -> int:
    """Return how many of these clients are hostile."""
    return sum(client in hostile for client in clients.tolist())
