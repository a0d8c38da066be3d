"""Training in five lines of Python: any `nn.Module`, any list of clients, any algorithm."""

import copy
import dataclasses
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

from torch import nn

from fedcm.config.experiment import ClientSection, EngineSection, ServerSection
from fedcm.config.schema import read_section
from fedcm.core.algorithm import Algorithm
from fedcm.core.losses import Loss
from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
from fedcm.core.round_loop import Metrics, run_rounds
from fedcm.data.dataset import ClientsOnDemand
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.imported import from_clients
from fedcm.data.on_demand import OnDemandData
from fedcm.data.partition import split_by_owner
from fedcm.errors import UserError
from fedcm.executors.local import LocalExecutor
from fedcm.runs.progress import show_progress
from fedcm.runs.wiring import wire


class Trained(NamedTuple):
    model: nn.Module  # a copy of the one given, with the trained parameters
    history: list[Metrics]  # one dict a round: loss, cohort, steps, norms, bytes; test_accuracy where evaluated


def train(
    model: nn.Module,
    clients: Sequence[Any] | ClientsOnDemand,
    algorithm: Algorithm[Any, Any, Any, Any],
    *,
    rounds: int,
    test: Any | None = None,
    participation: float | int | Participation = 1.0,
    epochs: int | None = None,
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
    stack: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> Trained:
    """Train a model over clients that keep their data.

    `clients` holds one torch dataset of (x, y), or one pair of tensors (features, labels), a client; `test` is one
    more. Clients that are too many to hold are a `ClientsOnDemand`.
    `participation` is a probability (each client independently, 1.0 = everyone), a number of clients a round, or
    a `Participation`. A client makes `epochs` passes over its data (1 unless given), or takes `steps` steps. `stack`
    clients train at once, which pays for tiny models. The loss
    is cross-entropy for integer labels and squared error for float ones unless given. The model passed in is not
    changed. The same arguments give the same bits.

    >>> import torch, fedcm
    >>> x = torch.linspace(-1, 1, 200).reshape(20, 10, 1)              # 20 clients with 10 examples each
    >>> clients = [(client, (client[:, 0] > 0).long()) for client in x]
    >>> model, history = fedcm.train(torch.nn.Linear(1, 2), clients, fedcm.FedCM(alpha=0.1), rounds=60, lr=1.0,
    ...                              participation=0.3, test=clients[3], batch_size=5)
    >>> history[-1]["test_accuracy"]
    1.0
    """
    local = {"epochs": epochs, "steps": steps, "batch_size": batch_size, "lr": lr, "lr_decay": lr_decay, "clip": clip}
    local |= {"weight_decay": weight_decay, "weight_decay_at": weight_decay_at}
    wired = wire(
        algorithm,
        copy.deepcopy(model),
        _federated(clients, test),
        read_section(ClientSection, local),
        read_section(ServerSection, {"lr": server_lr, "weights": weights}),
        participation=_participation(participation),
        rounds=rounds,
        seed=seed,
        evaluate_every=evaluate_every,
        loss=loss,
        engine=read_section(EngineSection, {"stack": stack, "layout": "channels_last", "compile": "off"}),
    )
    server, history = algorithm.init_server(wired.problem.initial()), []
    rounds_done = run_rounds(algorithm, LocalExecutor(wired.runner), wired.plan, server)
    for done in show_progress(rounds_done, total=rounds, hidden=not progress):
        server = done.server
        history.append(done.metrics)
    return Trained(copy.deepcopy(wired.problem.bind(server.params)), history)


def _federated(clients: Sequence[Any] | ClientsOnDemand, test: Any | None) -> FederatedData:
    if isinstance(clients, ClientsOnDemand):
        return OnDemandData(clients if test is None else dataclasses.replace(clients, test=test))
    dataset = from_clients(list(clients), test)
    assert dataset.owners is not None
    return ArrayData(dataset, split_by_owner(dataset.owners))


def _participation(given: float | int | Participation) -> Participation:
    if isinstance(given, bool):
        raise UserError("participation must be a probability, a number of clients or a Participation, got a bool")
    if isinstance(given, Integral):
        return FixedSize(int(given))
    if isinstance(given, Real):
        return Everyone() if given == 1.0 else Independent(float(given))
    if isinstance(given, float | int) or not hasattr(given, "cohort"):
        raise UserError(f"participation must be a probability, a number of clients or a Participation, got {given!r}")
    return given
