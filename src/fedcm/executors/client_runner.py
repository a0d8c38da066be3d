"""Everything that one process needs to do any client's round."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch

from fedcm.core.algorithm import Algorithm, Round, messages
from fedcm.core.exact_mean import ExactMean, OutOfRange
from fedcm.core.local_steps import ClientResult, run_local_steps
from fedcm.core.problem import Problem
from fedcm.core.stacked import StackedProblem, StackResult, reject_unstackable, run_stacked_steps
from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData
from fedcm.errors import Diverged
from fedcm.executors.client_states import ClientStates
from fedcm.rng import Purpose, make_torch_seed


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
            reject_unstackable(self.problem)

    @cached_property
    def _stacked(self) -> StackedProblem:
        return StackedProblem(self.problem)

    def units(self, cohort: np.ndarray) -> list[list[int]]:
        """The cohort's positions in stacks, formed before it is shared out, so that sharing leaves the bits alone."""
        return [list(range(start, min(start + self.stack, len(cohort)))) for start in range(0, len(cohort), self.stack)]

    def run_unit(
        self,
        clients: Sequence[int],
        sent: Any,
        states: ClientStates,
        round: Round,
        mean: ExactMean[Any],
        weights: np.ndarray,
    ) -> np.ndarray:
        """A stack of clients, or one: their reports go into the mean, what they keep to the states.

        Gives a row of facts for each: its steps, its loss, the checksum of what it keeps.
        """
        before = [states.get(client) for client in clients]
        if self.stack == 1:
            done = self.run(clients[0], sent, before[0], round)
            result = StackResult(done.report, done.kept, [done.steps], [done.loss])
        else:
            result = self._run_stack(clients, sent, before, round)
        for client, loss in zip(clients, result.losses, strict=True):
            if not math.isfinite(loss):
                raise Diverged(f"the loss of client {client} became {loss} in round {round.index}")
        try:
            mean.add_stack(clients, result.report, weights.tolist())
        except OutOfRange as error:
            raise Diverged(f"{error} in round {round.index}") from None
        after = [field.view(len(clients), -1).unbind() for field in result.kept]
        kept = [type(result.kept)(*fields) for fields in zip(*after, strict=True)] if after else [()] * len(clients)
        checksums = [states.put(client, own) for client, own in zip(clients, kept, strict=True)]
        return np.array([result.steps, result.losses, checksums], dtype=np.float64).T

    def _run_stack(self, clients: Sequence[int], sent: Any, before: Sequence[Any], round: Round) -> StackResult:
        sizes = self.data.sizes(np.asarray(clients))
        return run_stacked_steps(
            self.algorithm,
            self._stacked,
            sent,
            type(before[0])(*[torch.stack(fields) for fields in zip(*before, strict=True)]),
            pick=self.data.stacked(clients),
            batches=self.local_work.stacked(sizes, self.seed, round.index, clients),
            sizes=torch.from_numpy(sizes),
            client_lr=round.client_lr,
            step_decay=self.step_decay,
        )

    def run(self, client: int, sent: Any, kept: Any, round: Round) -> ClientResult:
        """One client's local steps."""
        self.problem.reseed(make_torch_seed(self.seed, Purpose.MODEL, round.index, client))
        data = self.data.client(client)
        return run_local_steps(
            self.algorithm,
            self.problem,
            sent,
            kept,
            data=data,
            batches=self.local_work.batches(data, self.seed, round.index, client),
            client_lr=round.client_lr,
            step_decay=self.step_decay,
        )

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
