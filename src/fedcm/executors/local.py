"""All clients of a round one after another, in this process."""

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.aggregate import ExactMean, OutOfRange
from fedcm.algorithm import Algorithm, Round, Vector
from fedcm.chance import Purpose, torch_seed
from fedcm.client import ClientResult, work
from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData
from fedcm.evaluate import Score, pieces, score, tally
from fedcm.executors.client_states import ClientStates
from fedcm.executors.executor import Diverged, RoundResult, Stopped
from fedcm.problem import Problem


@final
class LocalExecutor:
    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any, Any],
        problem: Problem,
        data: FederatedData,
        local_work: LocalWork,
        *,
        seed: int,
        step_decay: float = 0.0,
        weigh_by_examples: bool = False,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.algorithm = algorithm
        self.problem = problem
        self.data = data
        self.local_work = local_work
        self.seed = seed
        self.step_decay = step_decay
        self.weigh_by_examples = weigh_by_examples
        self.stop_requested = stop_requested
        self.states = ClientStates(algorithm, problem.initial())

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        if self.stop_requested():
            raise Stopped
        mean: ExactMean[Any] = ExactMean(len(cohort))
        weights = self._weights(cohort)
        results: list[tuple[int, ClientResult]] = []
        with torch.random.fork_rng(devices=[]):
            for client, weight in zip(cohort.tolist(), weights, strict=True):
                if self.stop_requested():
                    raise Stopped
                result = self._run_client(client, sent, round)
                try:
                    mean.add(client, result.report, weight)
                except OutOfRange as error:
                    raise Diverged(f"{error} in round {round.index}") from None
                results.append((client, result._replace(report=())))
        self.states.put((client, result.kept) for client, result in results)
        if not results:
            return RoundResult(None, 0, 0.0, math.nan, cohort)
        total = math.fsum(weights)
        return RoundResult(
            mean=mean.value(),
            cohort=len(results),
            steps=math.fsum(w * r.steps for w, (_, r) in zip(weights, results, strict=True)) / total,
            loss=math.fsum(w * r.loss for w, (_, r) in zip(weights, results, strict=True)) / total,
            clients=cohort,
        )

    def _run_client(self, client: int, sent: Any, round: Round) -> ClientResult:
        torch.manual_seed(torch_seed(self.seed, Purpose.MODEL, round.index, client))
        data = self.data.client(client)
        result = work(
            self.algorithm,
            self.problem,
            sent,
            self.states.get(client),
            data=data,
            batches=self.local_work.batches(data, self.seed, round.index, client),
            client_lr=round.client_lr,
            step_decay=self.step_decay,
        )
        if not math.isfinite(result.loss):
            raise Diverged(f"the loss of client {client} became {result.loss} in round {round.index}")
        return result

    def _weights(self, cohort: np.ndarray) -> list[float]:
        """Examples over a power of two no smaller than any client's count: exact in a float, at most 1."""
        if not self.weigh_by_examples:
            return [1.0] * len(cohort)
        sizes = self.data.sizes(cohort)
        return (sizes / 2.0 ** math.ceil(math.log2(max(sizes.max(initial=1), 2)))).tolist()

    def evaluate(self, params: Vector) -> Score | None:
        if not self.data.test_size:
            return None
        return score(tally(self.problem, params, self.data, start) for start in pieces(self.data))

    def client_states(self) -> dict[str, Tensor]:
        return self.states.save()

    def restore_client_states(self, states: dict[str, Tensor]) -> None:
        self.states.restore(states)
