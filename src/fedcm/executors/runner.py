"""Everything that one process needs to do any client's round."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch

from fedcm.aggregate import ExactMean
from fedcm.algorithm import Algorithm, Round, messages
from fedcm.chance import Purpose, torch_seed
from fedcm.client import ClientResult, work
from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData
from fedcm.executors.executor import Diverged
from fedcm.problem import Problem
from fedcm.stacked import StackedProblem, refuse_unstackable, work_stacked


@final
@dataclass(frozen=True)
class ClientRunner:
    algorithm: Algorithm[Any, Any, Any, Any]
    problem: Problem
    data: FederatedData
    local_work: LocalWork
    seed: int
    step_decay: float = 0.0  # weight decay after the algorithm's mix
    weigh_by_examples: bool = False
    stack: int = 1  # clients that train at once

    def __post_init__(self) -> None:
        if self.stack > 1:
            refuse_unstackable(self.problem)

    @cached_property
    def _stacked(self) -> StackedProblem:
        return StackedProblem(self.problem)

    def units(self, cohort: np.ndarray) -> list[list[int]]:
        """The cohort's positions in stacks, formed before it is shared out, so that sharing leaves the bits alone."""
        return [list(range(start, min(start + self.stack, len(cohort)))) for start in range(0, len(cohort), self.stack)]

    def run_unit(self, clients: Sequence[int], sent: Any, kept: Sequence[Any], round: Round) -> list[ClientResult]:
        """A stack of clients, or one."""
        if self.stack == 1:
            return [self.run(clients[0], sent, kept[0], round)]
        data = [self.data.client(client) for client in clients]
        results = work_stacked(
            self.algorithm,
            self._stacked,
            sent,
            kept,
            data=data,
            batches=[
                list(self.local_work.indices(own.size, self.seed, round.index, client))
                for own, client in zip(data, clients, strict=True)
            ],
            client_lr=round.client_lr,
            step_decay=self.step_decay,
        )
        for client, result in zip(clients, results, strict=True):
            _refuse_infinite(client, result, round)
        return results

    def run(self, client: int, sent: Any, kept: Any, round: Round) -> ClientResult:
        """The client's local steps; a loss that is not finite is an error that names it."""
        torch.manual_seed(torch_seed(self.seed, Purpose.MODEL, round.index, client))
        data = self.data.client(client)
        result = work(
            self.algorithm,
            self.problem,
            sent,
            kept,
            data=data,
            batches=self.local_work.batches(data, self.seed, round.index, client),
            client_lr=round.client_lr,
            step_decay=self.step_decay,
        )
        _refuse_infinite(client, result, round)
        return result

    def mean(self, like: torch.Tensor, cohort: int) -> ExactMean[Any]:
        """An empty mean of this algorithm's reports, whose fields are all vectors like the parameters."""
        kind = messages(type(self.algorithm)).reported
        return ExactMean(kind(*[like] * len(getattr(kind, "_fields", ()))), cohort)

    def weights(self, cohort: np.ndarray) -> np.ndarray:
        """Examples over a power of two no smaller than any client's count: exact in a float, at most 1."""
        if not self.weigh_by_examples or not len(cohort):
            return np.ones(len(cohort))
        sizes = self.data.sizes(cohort)
        return sizes / 2.0 ** math.ceil(math.log2(max(int(sizes.max()), 2)))

    def steps(self, cohort: np.ndarray) -> np.ndarray:
        """How many local steps each of these clients takes."""
        return np.array([self.local_work.count(int(size)) for size in self.data.sizes(cohort)], dtype=np.int64)


def _refuse_infinite(client: int, result: ClientResult, round: Round) -> None:
    if not math.isfinite(result.loss):
        raise Diverged(f"the loss of client {client} became {result.loss} in round {round.index}")
