"""The papers' pseudocode, transcribed line by line: slow, literal, and independent of the library.

Only the random choices come from outside: `world.cohort(t)` and `world.minibatches(t, i)`, the same that the library
uses. Every function yields the server's variables after each round, under the paper's letters. `world.clients` holds
the client states. Where a paper's symbol is a difference y − x, the sign is the paper's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]  # features, labels


class Shape(NamedTuple):
    """A multilayer perceptron: logits = W2·tanh(W1·z + b1) + b2."""

    inputs: int
    hidden: int
    classes: int


@dataclass
class World:
    """The pseudocode's surroundings: data, random choices, learning rates, and a loss with its gradient."""

    shape: Shape
    population: int  # N
    cohort: Callable[[int], list[int]]  # round -> S_t
    minibatches: Callable[[int, int], Sequence[Batch]]  # round, client -> one batch per local step
    all_data: Callable[[int], Batch]  # client -> all its data
    client_lr: Callable[[int], float]  # round -> η_l
    server_lr: float = 1.0  # 1 = plain averaging
    weight_decay: float = 0.0  # in the loss
    step_decay: float = 0.0  # added to the step instead; not in the papers
    clip: float | None = None  # limits the norm of a client's gradient; not in the papers
    weight: Callable[[int], float] = lambda client: 1.0  # in the mean, for algorithms without client state
    clients: dict[int, Tensor] = field(default_factory=dict)  # client states, if the algorithm has any

    def loss(self, theta: Tensor, batch: Batch) -> Tensor:
        inputs, hidden, classes = self.shape
        sizes = [hidden * inputs, hidden, classes * hidden, classes]
        w1, b1, w2, b2 = torch.split(theta, sizes)
        features, labels = batch
        logits = torch.tanh(features @ w1.reshape(hidden, inputs).T + b1) @ w2.reshape(classes, hidden).T + b2
        chosen = logits[range(len(labels)), labels]
        return (logits.exp().sum(1).log() - chosen).mean() + self.weight_decay / 2 * (theta * theta).sum()

    def gradient(self, theta: Tensor, batch: Batch) -> Tensor:
        theta = theta.clone().requires_grad_()
        (g,) = torch.autograd.grad(self.loss(theta, batch), theta)
        if self.clip is not None and g.norm() > self.clip:
            g = self.clip * g / g.norm()
        return g


def fedavg(world: World, x: Tensor, rounds: int) -> Iterator[dict[str, Tensor]]:
    """McMahan et al. 2017, with Reddi et al.'s server learning rate."""
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total = torch.zeros_like(x)
            for i in cohort:
                y = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    y = y - eta * (g + world.step_decay * y)
                total = total + world.weight(i) * (y - x)
            x = x + world.server_lr * total / sum(world.weight(i) for i in cohort)
        yield {"x": x}


def fedcm(world: World, x: Tensor, rounds: int, alpha: float) -> Iterator[dict[str, Tensor]]:
    """FedCM's algorithm; each client's change is divided by its own K, η_g = s·η_l·(mean K)."""
    delta = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, steps = torch.zeros_like(x), 0
            for i in cohort:
                y, k = x, 0
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    v = alpha * g + (1 - alpha) * delta
                    y = y - eta * (v + world.step_decay * y)
                    k = k + 1
                delta_i = y - x
                total = total + world.weight(i) * delta_i / (eta * k)
                steps = steps + world.weight(i) * k
            weights = sum(world.weight(i) for i in cohort)
            delta = -total / weights
            eta_g = world.server_lr * eta * steps / weights
            x = x - eta_g * delta
        yield {"x": x, "delta": delta}


def fedadam(
    world: World, x: Tensor, rounds: int, beta1: float, beta2: float, tau: float
) -> Iterator[dict[str, Tensor]]:
    """Reddi et al. 2021, Algorithm 2 with line 11's FedAdam."""
    m, v = torch.zeros_like(x), torch.full_like(x, tau**2)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total = torch.zeros_like(x)
            for i in cohort:
                y = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    y = y - eta * (g + world.step_decay * y)
                total = total + world.weight(i) * (y - x)
            delta = total / sum(world.weight(i) for i in cohort)
            m = beta1 * m + (1 - beta1) * delta
            v = beta2 * v + (1 - beta2) * delta**2
            x = x + world.server_lr * m / (v.sqrt() + tau)
        yield {"x": x, "-m": -m, "v": v}


def scaffold(world: World, x: Tensor, rounds: int, option: str) -> Iterator[dict[str, Tensor]]:
    """Karimireddy et al. 2020, Algorithm 1; option I uses the gradient over all of the client's data."""
    c = torch.zeros_like(x)
    world.clients = {i: torch.zeros_like(x) for i in range(world.population)}
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total_y, total_c = torch.zeros_like(x), torch.zeros_like(x)
            for i in cohort:
                y, k, c_i = x, 0, world.clients[i]
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    y = y - eta * (g - c_i + c + world.step_decay * y)
                    k = k + 1
                c_plus = world.gradient(x, world.all_data(i)) if option == "I" else c_i - c + (x - y) / (k * eta)
                total_y = total_y + (y - x)
                total_c = total_c + (c_plus - c_i)
                world.clients[i] = c_plus
            x = x + world.server_lr * total_y / len(cohort)
            c = c + len(cohort) / world.population * (total_c / len(cohort))
        yield {"x": x, "c": c}


def feddyn(world: World, x: Tensor, rounds: int, alpha: float) -> Iterator[dict[str, Tensor]]:
    """Acar et al. 2021, Algorithm 1, with minibatch steps as the local minimisation of

    L_i(θ) − ⟨∇L_i(θ_i), θ⟩ + α/2 ‖θ − x‖², where ∇L_i(θ_i) is the client state. The paper has no server learning rate:
    1 is the paper, s moves that fraction of the way from x.
    """
    h = torch.zeros_like(x)
    world.clients = {i: torch.zeros_like(x) for i in range(world.population)}
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total_theta, total_change = torch.zeros_like(x), torch.zeros_like(x)
            for i in cohort:
                theta, state = x, world.clients[i]
                for batch in world.minibatches(t, i):
                    g = world.gradient(theta, batch) - state + alpha * (theta - x)
                    theta = theta - eta * (g + world.step_decay * theta)
                world.clients[i] = state - alpha * (theta - x)
                total_theta = total_theta + theta
                total_change = total_change + (theta - x)
            h = h - alpha / world.population * total_change
            x = x + world.server_lr * (total_theta / len(cohort) - h / alpha - x)
        yield {"x": x, "h": h}
