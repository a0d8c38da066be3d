"""A literal run: docs/experiments.md and the papers' pseudocode as code, without the library.

The draws are part of every published result, so they are repeated here: one Philox generator for each (seed, purpose,
round, client). The cohorts are read from the run's metrics, which have rows of their own.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import Batch, Shape, World
from torch import Tensor, nn
from torch_optimizers import TorchSteps
from torch_schedules import list_torch_factors
from transcriptions import TRANSCRIPTIONS

SPLIT, INITIAL_PARAMS, COHORT, BATCHES, WORK, SPEED, AVAILABILITY = 1, 2, 3, 4, 14, 15, 16

CLIENT = {"epochs": 1, "batch_size": 50, "lr": 0.1, "lr_decay": 1.0, "weight_decay": 0.0, "weight_decay_at": "loss"}


def sequence(seed: int, purpose: int, round: int = 0, client: int = 0) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(purpose, round, client))


def generator(seed: int, purpose: int, round: int = 0, client: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(sequence(seed, purpose, round, client)))


class LocalBatch(tuple[Tensor, Tensor]):
    """The minibatch of a local step, with the factor of the step."""

    factor: float
    steps: TorchSteps


class Softmax(World):
    """Softmax regression on the given features."""

    def gradient(self, theta: Tensor, batch: Batch) -> Tensor:
        """Return what the optimiser moves by, times the factor of the step; so FedAvg's steps have this factor."""
        gradient = super().gradient(theta, batch)
        return batch.factor * batch.steps.move(theta, gradient, batch) if isinstance(batch, LocalBatch) else gradient

    def loss(self, theta: Tensor, batch: Batch) -> Tensor:
        features, labels = batch
        return cross_entropy(logits(theta, features, self.shape.classes), labels) + self.weight_decay / 2 * (
            theta @ theta
        )


class Rounded(Softmax):
    """Client states are rounded to bfloat16 when they are stored."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _RoundedOnes(value) if name == "clients" else value)


class _RoundedOnes(dict[int, Tensor]):
    def __setitem__(self, client: int, kept: Tensor) -> None:
        super().__setitem__(client, kept.float().bfloat16().double())


def logits(theta: Tensor, features: Tensor, classes: int) -> Tensor:
    inputs = features[0].numel()
    weight, bias = theta[: inputs * classes].reshape(classes, inputs), theta[inputs * classes :]
    return features.reshape(len(features), -1) @ weight.T + bias


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.exp().sum(1).log() - outputs[range(len(labels)), labels]).mean()


def initial(seed: int, inputs: int, classes: int) -> Tensor:
    """Return torch's initial parameters of a dense layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(sequence(seed, INITIAL_PARAMS).generate_state(1, np.uint64)[0] >> 1))
        layer = nn.Linear(inputs, classes)
    return torch.cat([layer.weight.detach().reshape(-1), layer.bias.detach()]).double()


def run_literally(
    table: dict[str, Any], clients: Sequence[Batch], cohorts: Sequence[list[int]], start: Tensor | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield the server's variables after every round of an experiment."""
    name = table["algorithm"]["name"]
    settings = {key: value for key, value in table["algorithm"].items() if key != "name"}
    world = world_of(table, clients, cohorts)
    if start is None:
        start = initial(table.get("seed", 0), world.shape.inputs, world.shape.classes)
    return TRANSCRIPTIONS[name](world, start, len(cohorts), settings)


def count_steps(table: dict[str, Any], round: int, number: int, size: int) -> int:
    """Return the steps of a client without a deadline."""
    client = CLIENT | table.get("client", {})
    unit = "steps" if "steps" in client else "epochs"
    amount = client[unit]
    if isinstance(amount, dict) and amount["kind"] == "uniform":
        drawn_in = 0 if amount.get("per") == "client" else round
        draw = generator(table.get("seed", 0), WORK, drawn_in, number)
        amount = int(draw.integers(amount["low"], amount["high"] + 1))
    elif isinstance(amount, dict):
        with Path(amount["path"]).open() as file:
            rows = list(csv.DictReader(file))
        own: dict[str | None, Any] = {None: amount.get("default")}
        own |= {row.get("round") or None: int(row[unit]) for row in rows if int(row["client"]) == number}
        amount = own.get(str(round), own[None])
    return amount if unit == "steps" else amount * -(-size // client["batch_size"])


def step_seconds(table: dict[str, Any], round: int, number: int) -> float:
    """Return the simulated seconds of a client's step: log-normal factors with median 1."""
    given, seed = table["stragglers"], table.get("seed", 0)
    usual, seconds = given.get("seconds_per_step", 1.0), {}
    if "file" in given:
        with Path(given["file"]).open() as file:
            seconds = {int(row["client"]): float(row["seconds_per_step"]) for row in csv.DictReader(file)}
    own = generator(seed, SPEED, 0, number).standard_normal() * given.get("spread", 0.0)
    now = generator(seed, SPEED, round + 1, number).standard_normal() * given.get("jitter", 0.0)
    return float(seconds.get(number, usual) * np.exp(own) * np.exp(now))


def world_of(
    table: dict[str, Any], clients: Sequence[Batch], cohorts: Sequence[list[int]], kind: type[Softmax] = Softmax
) -> Softmax:
    """Return the surroundings of the pseudocode; `kind` has the loss."""
    client, server, seed = CLIENT | table.get("client", {}), table.get("server", {}), table.get("seed", 0)
    clients = [(features.double(), labels) for features, labels in clients]
    sizes = [len(labels) for _, labels in clients]
    in_loss = client["weight_decay_at"] == "loss"
    if table.get("engine", {}).get("client_states") == "bfloat16":
        kind = Rounded

    def minibatches(round: int, number: int) -> Sequence[Batch]:
        features, labels = clients[number]
        draw, size, batch = generator(seed, BATCHES, round, number), sizes[number], client["batch_size"]
        steps = count_steps(table, round, number, size)
        if "stragglers" in table and table["stragglers"].get("policy") == "partial":
            own = step_seconds(table, round, number)
            steps = max(k for k in range(1, steps + 1) if k * own <= table["stragglers"]["deadline"])
        picked: list[np.ndarray] = []
        while len(picked) < steps:
            order = draw.permutation(size)
            picked += [order[first : first + batch] for first in range(0, size, batch)]
        factors = list_torch_factors(client["step_schedule"], steps) if "step_schedule" in client else [1.0] * steps
        batches = [LocalBatch((features[index], labels[index])) for index in picked[:steps]]
        optimizer = TorchSteps(client.get("optimizer", {"name": "sgd"}))  # fresh in every round
        for made, factor in zip(batches, factors, strict=True):
            made.factor, made.steps = factor, optimizer
        return batches

    def client_lr(round: int) -> float:
        """Return η_l of a round, and set the server's rate of that round."""
        rates = [
            rate * (list_torch_factors(schedule, len(cohorts))[round] if schedule else 1.0)
            for rate, schedule in ((client["lr"], client.get("schedule")), (own_server_lr, server.get("schedule")))
        ]
        world.server_lr = rates[1]
        return rates[0] * client["lr_decay"] ** round

    own_server_lr = server.get("lr", 1.0)
    world = kind(
        Shape(clients[0][0][0].numel(), 0, table["classes"]),
        len(clients),
        cohort=lambda round: cohorts[round],
        minibatches=minibatches,
        all_data=lambda number: clients[number],
        client_lr=client_lr,
        server_lr=own_server_lr,
        weight_decay=client["weight_decay"] if in_loss else 0.0,
        step_decay=0.0 if in_loss else client["weight_decay"],
        clip=client.get("clip"),
        weight=(lambda number: sizes[number]) if server.get("weights") == "examples" else (lambda number: 1.0),
    )
    return world
