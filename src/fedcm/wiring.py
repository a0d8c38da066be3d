"""From settings, a model and data to the objects that train: the one place where they are put together."""

from dataclasses import dataclass
from typing import Any, final

import torch.nn.functional as F
from torch import nn

from fedcm.algorithm import Algorithm
from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData
from fedcm.executors.runner import ClientRunner
from fedcm.experiment import Client, Server, refuse_unequal_weights
from fedcm.problem import Loss, Problem, squared_error
from fedcm.refusal import Refused
from fedcm.rehearsal import rehearse
from fedcm.sampling import FixedSize, Participation
from fedcm.schedule import Schedule
from fedcm.training import Plan


@final
@dataclass(frozen=True)
class Wired:
    problem: Problem
    runner: ClientRunner
    plan: Plan


def wire(
    algorithm: Algorithm[Any, Any, Any, Any],
    model: nn.Module,
    data: FederatedData,
    client: Client,
    server: Server,
    *,
    participation: Participation,
    rounds: int,
    seed: int,
    evaluate_every: int,
    loss: Loss | None = None,
    stack: int = 1,
) -> Wired:
    """Refuses what does not fit together. Without a loss it is cross-entropy, or squared error for float labels."""
    refuse_unequal_weights(algorithm, server)
    if isinstance(participation, FixedSize) and participation.clients > data.population:
        raise Refused(
            f"participation must be at most {data.population} clients, all there are, got {participation.clients}"
        )
    in_loss = client.weight_decay_at == "loss"
    default = F.cross_entropy if data.classes is not None else squared_error
    decay = client.weight_decay if in_loss else 0.0
    problem = Problem(model, loss or default, weight_decay=decay, clip=client.clip)
    data = data.ready_for(problem.dtype, problem.device)
    rehearse(problem, data.client(0), None if loss else data.classes)
    runner = ClientRunner(
        algorithm,
        problem,
        data,
        LocalWork(client.batch_size, client.epochs or 1, client.steps),
        seed=seed,
        step_decay=0.0 if in_loss else client.weight_decay,
        weigh_by_examples=server.weights == "examples",
        stack=stack,
    )
    schedule = Schedule(client.lr, client.lr_decay, server.lr)
    return Wired(problem, runner, Plan(rounds, data.population, participation, schedule, seed, evaluate_every))
