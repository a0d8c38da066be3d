"""Training in five lines of Python: any `nn.Module`, any list of clients, any algorithm."""

import copy
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch.nn.functional as F
from torch import nn

from fedcm.algorithm import Algorithm, messages
from fedcm.data.batches import LocalWork
from fedcm.data.federated import ArrayData
from fedcm.data.imported import from_clients
from fedcm.data.partition import by_owner
from fedcm.executors.local import LocalExecutor
from fedcm.problem import Loss, Problem, squared_error
from fedcm.progress import shown
from fedcm.refusal import Refused
from fedcm.rehearsal import rehearse
from fedcm.sampling import Everyone, FixedSize, Independent, Participation
from fedcm.schedule import Schedule
from fedcm.training import Metrics, Plan, training


class Trained(NamedTuple):
    model: nn.Module  # a copy of the one given, with the trained parameters
    history: list[Metrics]  # one dict a round: loss, cohort, steps, norms, bytes; test_accuracy where evaluated


def train(
    model: nn.Module,
    clients: Sequence[Any],
    algorithm: Algorithm[Any, Any, Any, Any],
    *,
    rounds: int,
    test: Any | None = None,
    participation: float | int | Participation = 1.0,
    epochs: int = 1,
    steps: int | None = None,
    batch_size: int = 50,
    lr: float = 0.1,
    lr_decay: float = 1.0,
    server_lr: float = 1.0,
    weight_decay: float = 0.0,
    weight_decay_at: Literal["loss", "step"] = "loss",
    clip: float | None = None,
    weights: Literal["clients", "examples"] = "clients",
    loss: Loss | None = None,
    evaluate_every: int = 10,
    seed: int = 0,
    progress: bool = False,
) -> Trained:
    """Train a model over clients that keep their data.

    `clients` holds one torch dataset of (x, y), or one pair of tensors (features, labels), a client; `test` is one
    more. `participation` is a probability (each client independently, 1.0 = everyone), a number of clients a round, or
    a `Participation`. The loss is cross-entropy for integer labels and squared error for float ones unless given.
    The model passed in is not changed. The same arguments give the same bits.

    >>> import torch, fedcm
    >>> x = torch.linspace(-1, 1, 200).reshape(20, 10, 1)              # 20 clients with 10 examples each
    >>> clients = [(client, (client[:, 0] > 0).long()) for client in x]
    >>> model, history = fedcm.train(torch.nn.Linear(1, 2), clients, fedcm.FedCM(alpha=0.1), rounds=60, lr=1.0,
    ...                              participation=0.3, test=clients[3], batch_size=5)
    >>> history[-1]["test_accuracy"]
    1.0
    """
    dataset = from_clients(list(clients), test)
    problem = Problem(
        copy.deepcopy(model),
        loss or (F.cross_entropy if dataset.classes is not None else squared_error),
        weight_decay=weight_decay if weight_decay_at == "loss" else 0.0,
        clip=clip,
    )
    if weights == "examples" and getattr(messages(type(algorithm)).kept, "_fields", ()):
        raise Refused(f'{type(algorithm).__name__} keeps state at clients and must have weights="clients"')
    assert dataset.owners is not None
    data = ArrayData(dataset, by_owner(dataset.owners), problem.dtype)
    rehearse(problem, data.client(0), data.classes if loss is None else None)
    executor = LocalExecutor(
        algorithm,
        problem,
        data,
        LocalWork(batch_size, epochs, steps),
        seed=seed,
        step_decay=weight_decay if weight_decay_at == "step" else 0.0,
        weigh_by_examples=weights == "examples",
    )
    schedule = Schedule(lr, lr_decay, server_lr)
    plan = Plan(rounds, data.population, _participation(participation), schedule, seed, evaluate_every)
    server, history = algorithm.init_server(problem.initial()), []
    for done in shown(training(algorithm, executor, plan, server), total=rounds, hidden=not progress):
        server = done.server
        history.append(done.metrics)
    return Trained(copy.deepcopy(problem.bind(server.params)), history)


def _participation(given: float | int | Participation) -> Participation:
    if isinstance(given, bool):
        raise Refused("participation must be a probability, a number of clients or a Participation, got a bool")
    if isinstance(given, int):
        return FixedSize(given)
    if isinstance(given, float):
        return Everyone() if given == 1.0 else Independent(given)
    return given
