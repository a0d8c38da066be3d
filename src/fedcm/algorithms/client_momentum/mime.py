"""Mime: MimeLite with variance reduction, which needs two exchanges per round.

    survey   gradient = ∇f_i(x) over all data of the client;  c = mean(gradient) over the cohort
    client   y ← y − η_l·((1−β)·(g(y) − g(x) + c) + β·m)       K_i times from y = x; g(y), g(x) on the same minibatch
    report   moved = x − y
    server   x ← x − s·mean(moved),  m ← (1−β)·c + β·m         m starts at 0

The base optimiser is SGD with momentum. With one step on the full batch, Mime(β) is FedCM(α = 1−β).

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich & Suresh, "Mime: Mimicking Centralized Stochastic Algorithms in Federated
Learning", 2020, arXiv:2008.03606.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Moved
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class ServerState(NamedTuple):
    params: Vector
    momentum: Vector
    control: Vector  # c of the current round


class Survey(NamedTuple):
    gradient: Vector


@final
@dataclass(frozen=True)
class Mime(Algorithm[ServerState, ServerState, Nothing, Moved]):
    """Mime; see the module's docstring."""

    beta: float = 0.9  # weight of the momentum in a step, in [0, 1)

    paper = "Karimireddy et al., 2020, arXiv:2008.03606"

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta must be at least 0 and below 1, got {self.beta}; 0.9 is usual")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params), torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def survey(self, full_gradient: Gradient, params: Vector, kept: Nothing) -> Survey:
        return Survey(full_gradient(params))

    def merge(self, server: ServerState, mean: Survey, round: Round) -> ServerState:
        return server._replace(control=mean.gradient)

    def direction(self, gradient: Gradient, params: Vector, sent: ServerState, kept: Nothing) -> Vector:
        corrected = gradient(params) - gradient(sent.params) + sent.control
        return torch.lerp(corrected, sent.momentum, self.beta)

    def report(self, run: LocalRun, sent: ServerState, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept

    def update(self, server: ServerState, mean: Moved, round: Round) -> ServerState:
        momentum = torch.lerp(server.control, server.momentum, self.beta)
        return ServerState(server.params - round.server_lr * mean.moved, momentum, server.control)
