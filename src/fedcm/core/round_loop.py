"""The round loop: the only one there is, whatever runs the clients.

It is a generator: whoever drives it sees every finished round, and decides what to write, to show and when to stop.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, Round
from fedcm.core.executor import Executor, RoundResult
from fedcm.core.participation import Participation
from fedcm.core.schedule import Schedule
from fedcm.errors import Diverged
from fedcm.system.faults import add_note
from fedcm.system.threads import one_thread

Metrics = dict[str, Any]

_NAMED = 1000  # a larger cohort is told by its size alone; who it was follows from the seed


@final
@dataclass(frozen=True)
class TrainingPlan:
    """What a training is, beside its algorithm and its clients."""

    rounds: int
    population: int
    participation: Participation
    schedule: Schedule
    seed: int = 0
    evaluate_every: int = 10  # rounds; the last round is always evaluated

    def __post_init__(self) -> None:
        for name in ("rounds", "population", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@final
@dataclass(frozen=True)
class FinishedRound:
    index: int
    server: Any  # the algorithm's server state after the round
    metrics: Metrics  # the line for metrics.jsonl


def run_rounds(
    algorithm: Algorithm[Any, Any, Any, Any], executor: Executor, plan: TrainingPlan, server: Any, first: int = 0
) -> Iterator[FinishedRound]:
    """Rounds `first`, …, from a server state on."""
    for index in range(first, plan.rounds):
        started = time.perf_counter()
        try:
            with one_thread():
                server, metrics = run_round(algorithm, executor, plan, server, index)
        except Exception as error:
            add_note(error, f"round {index} failed")
            raise
        yield FinishedRound(index, server, metrics | {"seconds": round_seconds(started)})


def run_round(
    algorithm: Algorithm[Any, Any, Any, Any], executor: Executor, plan: TrainingPlan, server: Any, index: int
) -> tuple[Any, Metrics]:
    cohort = plan.participation.cohort(plan.population, plan.seed, index)
    client_lr = plan.schedule.client(index)
    round = Round(index, client_lr, plan.schedule.server_lr, len(cohort), plan.population, math.nan)
    sent = algorithm.broadcast(server)
    result = executor.run_round(sent, cohort, round)
    before = server
    if result.cohort:  # an empty round passes and changes nothing
        server = algorithm.update(server, result.mean, replace(round, cohort=result.cohort, steps=result.steps))
    metrics = describe(index, client_lr, len(cohort), sent, result, before, server)
    if (index + 1) % plan.evaluate_every == 0 or index + 1 == plan.rounds:
        metrics |= evaluation(executor, server.params, index)
    return server, metrics


def describe(
    index: int, client_lr: float, asked: int, sent: Any, result: RoundResult, before: Any, after: Any
) -> Metrics:
    norms = {"update_norm": norm(after.params - before.params)}
    norms |= {f"{name}_norm": norm(field) for name, field in zip(after._fields, after, strict=True) if name != "params"}
    for name, value in norms.items():
        if not math.isfinite(value):
            raise Diverged(f"the server's {name} became {value} in round {index}")
    return {
        "round": index,
        "cohort": result.cohort,
        **({"clients": result.clients.tolist()} if result.cohort <= _NAMED else {}),
        "steps": result.steps,
        "client_lr": client_lr,
        "loss": result.loss if result.cohort else None,
        **norms,
        "bytes_down": asked * size_in_bytes(sent),
        "bytes_up": result.cohort * size_in_bytes(result.mean or ()),
        **result.told,
    }


def evaluation(executor: Executor, params: Tensor, index: int) -> Metrics:
    score = executor.evaluate(params)
    if score is None:
        return {}
    if not math.isfinite(score.loss):
        raise Diverged(f"the loss on the test data became {score.loss} in round {index}")
    return {"test_loss": score.loss, "test_accuracy": score.accuracy}


def norm(vector: Tensor) -> float:
    return torch.linalg.vector_norm(vector, dtype=torch.float64).item()


def size_in_bytes(message: tuple) -> int:
    return sum(field.numel() * field.element_size() for field in message)


def round_seconds(started: float) -> float:
    return round(time.perf_counter() - started, 6)
