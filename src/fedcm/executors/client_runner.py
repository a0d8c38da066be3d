"""Runs the local steps of any client, in one process."""

import math
from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import torch

from fedcm.core.aggregation import PLAIN_MEAN, Aggregation, ReportSum
from fedcm.core.algorithm import Algorithm, Round, Vector
from fedcm.core.attacks.poison import Poison
from fedcm.core.contract.templates import MessageTemplates, make_templates
from fedcm.core.exact_mean import ExactMean, OutOfRange
from fedcm.core.local.optimizers import LocalOptimizer
from fedcm.core.local.personal import PersonalSteps
from fedcm.core.local.stacked import StackedProblem, StackResult, reject_unstackable, run_stacked_steps
from fedcm.core.local.step_factors import StepFactors
from fedcm.core.local.steps import ClientResult, run_local_steps
from fedcm.core.problem import Problem
from fedcm.core.scoring.metric_set import DEFAULT_METRICS, MetricSet
from fedcm.data.augmentation import Augment
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData
from fedcm.errors import Diverged
from fedcm.executors.client_states import ClientStates
from fedcm.executors.client_tests import ClientEvaluation
from fedcm.rng import Purpose, make_torch_seed

PERSONAL = "personal"  # the field of a client's state with its personal parameters


@final
@dataclass(frozen=True)
class ClientRunner:
    """The algorithm, the model, the data and the settings that a client's local steps depend on."""

    algorithm: Algorithm[Any, Any, Any, Any]
    problem: Problem
    data: FederatedData
    local_work: LocalWork
    seed: int
    step_decay: float = 0.0  # weight decay that is added to the algorithm's direction
    weigh_by_examples: bool = False
    stack: int = 1  # clients that train at once
    augment: Augment | None = None  # changes every batch of training
    fresh: bool = False  # whether the examples are read anew in every pass
    step_factors: StepFactors | None = None  # factors of the local steps; all 1 by default
    optimizer: LocalOptimizer | None = None  # maps the gradients of the minibatches; none by default
    metrics: MetricSet = DEFAULT_METRICS  # of evaluations
    aggregation: Aggregation = PLAIN_MEAN  # how reports are averaged
    poison: Poison | None = None  # changes the data of hostile clients; none by default
    client_evaluation: ClientEvaluation | None = None  # how clients are evaluated on test data of their own

    def __post_init__(self) -> None:
        if self.stack > 1:
            reject_unstackable(self.problem)

    @cached_property
    def _stacked(self) -> StackedProblem:
        return StackedProblem(self.problem)

    @cached_property
    def templates(self) -> MessageTemplates:
        """The shapes of this algorithm's messages."""
        return make_templates(self.algorithm, self.problem.initial_params, self.problem.shapes)

    @cached_property
    def initial_state(self) -> Any:
        """The state of a client before its first round: the algorithm's, and personal parameters if there are any."""
        kept = self.algorithm.init_client(self.problem.initial_params)
        if not self.problem.personal_size:
            return kept
        kind = namedtuple("PersonalClientState", [*kept._fields, PERSONAL])
        return kind(*kept, self.problem.initial_personal)

    def split_state(self, state: Any) -> tuple[Any, PersonalSteps | None]:
        """Return the algorithm's part of a client's state, and a copy of its personal parameters, bound to the model.

        The copy is None if all parameters are shared.
        """
        if not self.problem.personal_size:
            return state, None
        *kept, personal = state
        steps = PersonalSteps(personal.clone(), self.optimizer, self.step_decay)
        self.problem.bind_personal(steps.params)
        return self.templates.client_state._make(kept), steps

    def split_into_stacks(self, cohort: np.ndarray) -> list[list[int]]:
        """Return the positions of the cohort in stacks.

        Stacks are formed before they are spread over workers, so that the number of workers does not change the bits.
        """
        return [list(range(start, min(start + self.stack, len(cohort)))) for start in range(0, len(cohort), self.stack)]

    def run_stack(
        self,
        clients: Sequence[int],
        sent: Any,
        states: ClientStates,
        round: Round,
        reports: ReportSum,
        weights: np.ndarray,
    ) -> np.ndarray:
        """Run the clients of one stack, add their reports and put their new states.

        Returns:
            One row per client: its steps, its loss and the checksum of its state.

        Raises:
            Diverged: If a loss or a report is not finite, or a report is too large.
        """
        before = [states.get(client) for client in clients]
        if self.stack == 1:
            done = self.run_client(clients[0], sent, before[0], round)
            result, after = StackResult(done.report, (), [done.steps], [done.loss]), [done.client_state]
        else:
            result = self._run_stacked(clients, sent, before, round)
            after = _unstack(result.client_state, len(clients))
        for client, loss in zip(clients, result.losses, strict=True):
            if not math.isfinite(loss):
                raise Diverged(f"the loss of client {client} became {loss} in round {round.index}")
        try:
            reports.add_stack(clients, result.report, weights.tolist())
        except OutOfRange as error:
            raise Diverged(f"{error} in round {round.index}") from None
        checksums = [states.put(client, state) for client, state in zip(clients, after, strict=True)]
        return np.array([result.steps, result.losses, checksums], dtype=np.float64).T

    def _run_stacked(self, clients: Sequence[int], sent: Any, before: Sequence[Any], round: Round) -> StackResult:
        sizes = self.data.sizes(np.asarray(clients))
        pick = self.data.stack_clients(clients)
        if self.poison is not None:
            pick = self.poison.select(list(clients), pick, sizes.tolist())
        return run_stacked_steps(
            self.algorithm,
            self._stacked,
            sent,
            type(before[0])(*[torch.stack(fields) for fields in zip(*before, strict=True)]),
            pick=pick,
            batches=self.local_work.draw_stacked_indices(sizes, self.seed, round.index, clients),
            sizes=torch.from_numpy(sizes),
            client_lr=round.client_lr,
            step_decay=self.step_decay,
            step_factors=self.step_factors,
            optimizer=self.optimizer,
        )

    def run_client(self, client: int, sent: Any, kept: Any, round: Round) -> ClientResult:
        """Run the local steps of one client. `kept` is its state, with personal parameters if there are any."""
        state = kept
        kept, personal = self.split_state(state)
        self.problem.reseed(make_torch_seed(self.seed, Purpose.MODEL, round.index, client))
        data = self.read_client(client)
        done = run_local_steps(
            self.algorithm,
            self.problem,
            sent,
            kept,
            data=data,
            batches=self.draw_batches(data, round.index, client),
            count=self.local_work.count_steps(data.size, self.seed, round.index, client),
            client_lr=round.client_lr,
            step_decay=self.step_decay,
            step_factors=self.step_factors,
            optimizer=self.optimizer,
            personal=personal,
        )
        if personal is None:
            return done
        return done._replace(client_state=type(state)(*done.client_state, personal.params))

    def draw_batches(self, data: Examples, round: int, client: int) -> Iterator[Examples]:
        """Yield the batches of one client in one round as the model gets them."""
        read_pass = partial(self._read_pass, round, client) if self.fresh else None
        batches = map(self.problem.collate, self.local_work.draw_batches(data, self.seed, round, client, read_pass))
        if self.augment is None:
            yield from batches
            return
        # all seeds at once: between two gradients, the code that makes one has left the caches and is ten times slower
        steps = range(self.local_work.count_steps(data.size, self.seed, round, client))
        seeds = [make_torch_seed(self.seed, Purpose.AUGMENTATION, round, client, step) for step in steps]
        generator = torch.Generator()
        for seed, batch in zip(seeds, batches, strict=True):
            yield self.augment(batch, generator.manual_seed(seed))

    def _read_pass(self, round: int, client: int, number: int) -> Examples:
        seed = make_torch_seed(self.seed, Purpose.FRESH_ITEMS, round, client, number)
        data = self.data.reread_client(client, seed)
        return data if self.poison is None else self.poison.apply(client, data)

    def read_client(self, client: int) -> Examples:
        """Return the examples that a client trains on; those of a hostile client may be poisoned."""
        data = self.data.client(client)
        return data if self.poison is None else self.poison.apply(client, data)

    def survey_client(
        self, client: int, params: Vector, states: ClientStates, round: Round, mean: ExactMean[Any], weight: float
    ) -> None:
        """Add the survey of one client to the mean.

        Raises:
            Diverged: If the survey is not finite, or too large.
        """
        self.problem.reseed(make_torch_seed(self.seed, Purpose.MODEL, round.index, client))
        full_gradient = self.problem.full_gradient(self.read_client(client))
        with torch.no_grad():
            survey = self.algorithm.survey(full_gradient, params, self.split_state(states.get(client))[0])
        try:
            mean.add(client, survey, weight)
        except OutOfRange as error:
            raise Diverged(f"{error} in round {round.index}") from None

    def make_mean(self, cohort_size: int) -> ExactMean[Any]:
        """Return an empty mean of this algorithm's reports."""
        return ExactMean(self.templates.report, cohort_size)

    def start_reports(self, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round."""
        return self.aggregation.start_round(self.templates.report, sent, cohort, round)

    def make_survey_mean(self, cohort_size: int) -> ExactMean[Any]:
        """Return an empty mean of this algorithm's surveys."""
        return ExactMean(self.templates.survey, cohort_size)

    def compute_weights(self, cohort: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the weight of each client in the mean.

        By default every weight is 1. If clients are weighed by their examples, it is the number of examples over a
        power of two that is not below the largest number: exact in a float, and at most 1.

        Args:
            cohort: The clients.
            sizes: The numbers of examples that they count for; by default those of the data.
        """
        if not self.weigh_by_examples or not len(cohort):
            return np.ones(len(cohort))
        sizes = self.data.sizes(cohort) if sizes is None else sizes
        return sizes / 2.0 ** math.ceil(math.log2(max(int(sizes.max()), 2)))

    def count_steps(self, cohort: np.ndarray, round: int) -> np.ndarray:
        """Return the number of local steps of each client in a round."""
        sizes = zip(cohort.tolist(), self.data.sizes(cohort).tolist(), strict=True)
        counts = [self.local_work.count_steps(size, self.seed, round, client) for client, size in sizes]
        return np.array(counts, dtype=np.int64)

    def sum_step_factors(self, counts: np.ndarray) -> np.ndarray:
        """Return the effective number of steps Σ f_k of clients with these numbers of steps."""
        if self.step_factors is None:
            return counts
        return np.array([self.step_factors.sum(int(count)) for count in counts])


def _unstack(stack: tuple, clients: int) -> list[tuple]:
    fields = [field.unbind() for field in stack]
    return [type(stack)(*rows) for rows in zip(*fields, strict=True)] if fields else [()] * clients
