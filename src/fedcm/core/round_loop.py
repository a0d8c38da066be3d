"""The round loop, which is the same for every executor.

It is a generator: the caller gets every finished round, and decides what to write, what to show and when to stop.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, Round, has_survey, is_decentralised
from fedcm.core.conditions.availability import Availability, draw_available_cohort, list_available
from fedcm.core.conditions.deadline import SimulatedDeadline
from fedcm.core.executor import ClientTestExecutor, Executor, GossipExecutor, RoundResult, SurveyExecutor
from fedcm.core.metrics import RoundMetrics
from fedcm.core.participation import Participation
from fedcm.core.privacy.budget import EPSILON, PrivacyBudget
from fedcm.core.privacy.quantile import FACTOR, SHARE
from fedcm.core.schedule import Schedule
from fedcm.core.stopping import Line, StopReason, StopRule, StopWatch
from fedcm.core.topology import Topology, compute_mixing_matrix
from fedcm.errors import Diverged
from fedcm.system.error_messages import add_note
from fedcm.system.hardware import use_one_thread

_MAX_LISTED_CLIENTS = 1000  # the clients of a larger cohort are not recorded, because they follow from the seed


class RoundCohort(NamedTuple):
    """Who takes part in a round."""

    asked: np.ndarray  # the clients that receive the broadcast, sorted
    reporting: np.ndarray  # those of them that report, sorted
    metrics: Mapping[str, Any]  # of the conditions, for metrics.jsonl


@final
@dataclass(frozen=True)
class TrainingPlan:
    """Everything that defines a training except the algorithm and the clients' work."""

    rounds: int
    population: int
    participation: Participation
    schedule: Schedule
    seed: int = 0
    evaluate_every: int = 10  # rounds; the last round is always evaluated
    topology: Topology | None = None  # the graph of a decentralised algorithm
    availability: Availability | None = None  # None: all clients, always
    deadline: SimulatedDeadline | None = None  # None: the server waits for every client
    stop: StopRule | None = None  # when the run ends early
    evaluates_clients: bool = False  # on the test data of each client, whenever the model is evaluated
    budget: PrivacyBudget | None = None  # what the rounds of a private training cost

    @cached_property
    def mixing(self) -> np.ndarray:
        """The weights of the graph, (population, population)."""
        assert self.topology is not None, "a decentralised algorithm needs a graph"
        return compute_mixing_matrix(self.topology, self.population, self.seed)

    def __post_init__(self) -> None:
        for name in ("rounds", "population", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def last_round(self) -> int:
        """The index of the last round: that of the plan, or the last one that the privacy budget pays for."""
        paid = self.budget.rounds if self.budget is not None else None
        return min(self.rounds, self.rounds if paid is None else paid) - 1

    @property
    def watched_columns(self) -> tuple[str, ...]:
        """The columns of earlier rounds that later ones depend on, besides the number of the round."""
        columns = (self.stop.metric.column,) if self.stop is not None else ()
        return columns + ((SHARE, FACTOR) if self.budget is not None and self.budget.quantile is not None else ())

    def select_watched(self, lines: Iterable[Line]) -> list[dict[str, Any]]:
        """Return lines of metrics with only what later rounds depend on; none if they depend on nothing."""
        keys = ("round", *self.watched_columns)
        return [{key: line[key] for key in keys if key in line} for line in lines] if len(keys) > 1 else []

    def find_stop(self, done: int, lines: Iterable[Line]) -> StopReason | None:
        """Return when and why a run ended before its last round; None if it did not.

        Args:
            done: The number of finished rounds.
            lines: Their metrics, as far as `watched_columns` names them.
        """
        if done >= self.rounds:
            return None
        reason = self.stop.find(lines) if self.stop is not None else None
        if reason is not None or self.budget is None or not done:
            return reason
        return self.budget.explain_end(done - 1)

    def draw_cohort(self, round: int) -> RoundCohort:
        """Draw the cohort of a round; a pure function of (seed, round)."""
        metrics: dict[str, Any] = {}
        if self.availability is None:
            asked = self.participation.cohort(self.population, self.seed, round)
        else:
            available = list_available(self.availability, self.population, self.seed, round)
            asked = draw_available_cohort(self.participation, available, self.population, self.seed, round)
            metrics["available"] = len(available)
        if self.deadline is None:
            return RoundCohort(asked, asked, metrics)
        reporting, seconds = self.deadline.admit(asked, round)
        metrics |= {"missed": len(asked) - len(reporting), "simulated_seconds": seconds}
        return RoundCohort(asked, reporting, metrics)


@final
@dataclass(frozen=True)
class FinishedRound:
    """The result of one round."""

    index: int
    server: Any  # the algorithm's server state after the round
    metrics: RoundMetrics
    stop: StopReason | None = None  # why the run ends early after this round


def run_rounds(
    algorithm: Algorithm[Any, Any, Any, Any],
    executor: Executor,
    plan: TrainingPlan,
    server: Any,
    first: int = 0,
    before: Iterable[Line] = (),
) -> Iterator[FinishedRound]:
    """Run the rounds from `first` to the last one, or until the plan's rule ends the run early.

    Args:
        algorithm: The algorithm.
        executor: Runs the clients.
        plan: The plan.
        server: The server state before round `first`.
        first: The first round.
        before: The metrics of the rounds before it, for the plan's rule.

    Yields:
        Each round when it is finished.
    """
    lines = list(before)
    watch = StopWatch(plan.stop, lines) if plan.stop is not None else None
    last = lines[-1] if lines else None
    for index in range(first, plan.last_round + 1):
        if watch is not None and watch.reason is not None:
            return
        started = time.perf_counter()
        try:
            with use_one_thread():
                server, metrics = run_round(algorithm, executor, plan, server, index, last)
        except Exception as error:
            add_note(error, f"round {index} failed")
            raise
        metrics = replace(metrics, seconds=_measure_seconds(started))
        last = metrics.to_dict()
        stop = watch.add(last) if watch is not None else None
        if stop is None and plan.budget is not None and index + 1 < plan.rounds:
            stop = plan.budget.explain_end(index)
        yield FinishedRound(index, server, metrics, stop)


def run_round(
    algorithm: Algorithm[Any, Any, Any, Any],
    executor: Executor,
    plan: TrainingPlan,
    server: Any,
    index: int,
    last: Line | None = None,
) -> tuple[Any, RoundMetrics]:
    """Run one round and return the new server state and the metrics.

    Args:
        algorithm: The algorithm.
        executor: Runs the clients.
        plan: The plan.
        server: The server state before the round.
        index: The round.
        last: The metrics of the round before, if there was one.
    """
    asked, cohort, conditions = plan.draw_cohort(index)
    client_lr = plan.schedule.client_lr_at(index)
    server_lr = plan.schedule.server_lr_at(index)
    quantile = plan.budget.quantile if plan.budget is not None else None
    factor = quantile.compute_factor(last) if quantile is not None else 1.0
    round = Round(index, client_lr, server_lr, len(cohort), plan.population, math.nan, factor)
    before = server
    survey: tuple = ()
    if has_survey(algorithm) and len(cohort):
        assert isinstance(executor, SurveyExecutor), "this executor has one exchange per round"
        survey = executor.run_survey(server.params, cohort, round)
        server = algorithm.merge(server, survey, round)
    sent = algorithm.broadcast(server)
    if is_decentralised(algorithm):
        assert isinstance(executor, GossipExecutor), "this executor needs a server"
        result = executor.run_gossip(sent, cohort, round, plan.mixing)
    else:
        result = executor.run_round(sent, cohort, round)
    if result.mean is not None:  # a round without reports changes nothing, unless its mean is private
        known = replace(round, cohort_size=result.update_size, steps=result.update_steps)
        server = algorithm.update(server, result.mean, known)
    metrics = collect_metrics(round, sent, result, before, server)
    if plan.budget is not None:
        metrics = metrics.override({EPSILON: plan.budget.epsilon_after(index + 1)})
    if plan.schedule.server is not None:
        metrics = replace(metrics, server_lr=server_lr)
    if conditions:  # the broadcast goes down to everyone who was asked
        metrics = replace(metrics, bytes_down=len(asked) * count_bytes(sent)).override(conditions)
    if survey:  # the parameters go down in the first exchange, the rest of the broadcast in the second
        metrics = replace(metrics, bytes_up=metrics.bytes_up + len(cohort) * count_bytes(survey))
    if (index + 1) % plan.evaluate_every == 0 or index == plan.last_round:
        metrics = add_evaluation(metrics, executor, server.params)
        if plan.evaluates_clients:
            assert isinstance(executor, ClientTestExecutor), "this executor cannot evaluate clients"
            scores = executor.evaluate_clients(server.params, round)
            metrics = replace(metrics, evaluations={**metrics.evaluations, **scores.describe()}, client_scores=scores)
    return server, metrics


def collect_metrics(round: Round, sent: Any, result: RoundResult, before: Any, after: Any) -> RoundMetrics:
    """Return the metrics of a round that took the server from the state `before` to the state `after`.

    Raises:
        Diverged: If a field of the new server state is not finite.
    """
    norms = {"update_norm": compute_norm(after.params - before.params)}
    norms |= {
        f"{name}_norm": compute_norm(field)
        for name, field in zip(after._fields, after, strict=True)
        if name != "params"
    }
    for name, value in norms.items():
        if not math.isfinite(value):
            raise Diverged(f"the server's {name} became {value} in round {round.index}")
    metrics = RoundMetrics(
        round=round.index,
        cohort_size=result.cohort_size,
        clients=result.clients.tolist() if result.cohort_size <= _MAX_LISTED_CLIENTS else None,
        steps=result.steps,
        client_lr=round.client_lr,
        loss=result.loss if result.cohort_size else None,
        norms=norms,
        bytes_down=int(round.cohort_size) * count_bytes(sent),
        bytes_up=result.cohort_size * count_bytes(result.mean or ()),
    )
    return metrics.override(result.extra_metrics)


def add_evaluation(metrics: RoundMetrics, executor: Executor, params: Tensor) -> RoundMetrics:
    """Return the metrics with the results on the test data and the validation data, if there are any.

    Raises:
        Diverged: If a loss is not finite.
    """
    scores = executor.evaluate(params)
    for which, score in scores.items():
        if not math.isfinite(score.loss):
            raise Diverged(f"the loss on the {which} data became {score.loss} in round {metrics.round}")
    return replace(metrics, evaluations={which: score.to_dict() for which, score in scores.items()})


def compute_norm(vector: Tensor) -> float:
    """Return the Euclidean norm, computed in float64 so that it cannot overflow."""
    return torch.linalg.vector_norm(vector, dtype=torch.float64).item()


def count_bytes(message: tuple) -> int:
    """Return the size of all tensors of a message."""
    return sum(field.numel() * field.element_size() for field in message)


def _measure_seconds(started: float) -> float:
    return round(time.perf_counter() - started, 6)
