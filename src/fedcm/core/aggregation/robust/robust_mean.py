"""The aggregation that applies a robust rule to the reports of every round."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.aggregation.aggregation import PLAIN_MEAN, Aggregation, PlainMean
from fedcm.core.aggregation.report_sum import ReportSum
from fedcm.core.aggregation.report_table import ReportTable
from fedcm.core.aggregation.robust.clipping import Clipped
from fedcm.core.aggregation.robust.coordinates import Median
from fedcm.core.aggregation.robust.rows import ReportRows, draw_buckets
from fedcm.core.aggregation.robust.rule import RobustRule, compute_factors
from fedcm.core.algorithm import Algorithm, Round
from fedcm.core.exact_mean import ExactMean

_FALLBACK = Median()  # for rounds with too few reports for the rule
_MAX_LISTED_CLIENTS = 1000
GuessReport = Callable[[Any], Any]


def make_aggregation(mean: RobustRule | PlainMean, seed: int, algorithm: Algorithm[Any, Any, Any, Any]) -> Aggregation:
    """Return the aggregation that a mean describes."""
    if isinstance(mean, PlainMean):
        return PLAIN_MEAN
    if isinstance(mean, Clipped) and not mean.needs_table:
        assert mean.bound is not None
        return ClippedMean(mean.bound)
    return RobustMean(mean, seed, algorithm.expected_report)


@final
@dataclass(frozen=True)
class ClippedMean:
    """The mean of reports that are clipped to a fixed bound as they arrive, without a table."""

    bound: float

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round; see `Aggregation`."""
        return _ClippedSum(ExactMean(template, len(cohort)), self.bound)


@final
class _ClippedSum(ReportSum):
    def __init__(self, empty: ExactMean[Any], bound: float) -> None:
        self._sum = empty
        self._bound = bound

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum of the clipped reports."""
        return self._sum

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the clipped reports of a stack of clients; see `ReportSum`."""
        fields = [field.reshape(len(clients), -1) for field in report]
        norms = ReportRows(fields).compute_distances()
        if np.isfinite(norms).all():  # otherwise the sum names the client
            factors = compute_factors(self._bound, norms)
            report = type(report)(*[_scale_rows(field, factors) for field in fields])
        self._sum.add_stack(clients, report, weights)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the weighted mean of the clipped reports."""
        return self._sum.compute(math.fsum(weights))


def _scale_rows(rows: Tensor, factors: np.ndarray) -> Tensor:
    return (rows.double() * torch.from_numpy(factors).to(rows.device)[:, None]).to(rows.dtype)


@final
@dataclass(frozen=True)
class RobustMean:
    """A robust mean of all reports of a round, which are held in a table."""

    rule: RobustRule
    seed: int  # of the buckets
    guess_report: GuessReport  # from the broadcast to the server's guess of a report, or None

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round; see `Aggregation`."""
        guess = self.guess_report(sent) if self.rule.starts_at_guess else None
        table = ReportTable(ExactMean(template, len(cohort)), cohort)
        return _RobustTable(table, self.rule, guess, self.seed, round.index)


@final
class _RobustTable(ReportSum):
    def __init__(self, table: ReportTable, rule: RobustRule, guess: Any, seed: int, round: int) -> None:
        self._table = table
        self._rule = rule
        self._guess = None if guess is None else [field.reshape(-1).double() for field in guess]
        self._seed = seed
        self._round = round
        self._facts: dict[str, Any] = {}

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum, which checks the range of the reports."""
        return self._table.sum

    @property
    def rows(self) -> list[Tensor]:
        """The bits of the table."""
        return self._table.rows

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the reports of a stack of clients; see `ReportSum`."""
        self._table.add_stack(clients, report, weights)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the robust mean of the reports of these clients."""
        buckets = draw_buckets(len(clients), self._rule.bucketing, self._seed, self._round)
        rows = ReportRows(self._table.select(clients), buckets)
        rule = self._rule if rows.count >= self._rule.least_rows else _FALLBACK
        own = np.array([math.fsum(weights[bucket]) for bucket in buckets])
        combined = rule.combine(rows, own, self._guess)
        self._facts = {} if rule is self._rule else {"mean_fallback": "median"}
        if combined.clipped is not None:
            self._facts["clipped"] = combined.clipped
        if combined.kept is not None and len(clients) <= _MAX_LISTED_CLIENTS:
            self._facts["kept"] = sorted(int(clients[one]) for row in combined.kept for one in buckets[row])
        template = self.sum.template
        pairs = zip(combined.fields, template, strict=True)
        return type(template)(*[field.to(like.dtype).view(like.shape) for field, like in pairs])

    def describe(self) -> Mapping[str, Any]:
        """Return what the rule did: `clipped` rows, clients that were `kept`, `mean_fallback` with too few reports."""
        return self._facts
