"""FedDANE: every local problem is corrected to the cohort's mean gradient, which needs two exchanges per round.

    survey   gradient = ∇f_i(x) over all data of the client;  c = mean(gradient) over the cohort
    client   y ← y − η_l·(g + c − ∇f_i(x) + μ·(y − x))     K_i times from y = x
    report   moved = x − y
    server   x ← x − s·mean(moved)

A client computes ∇f_i(x) in both exchanges, so that it does not have to keep it in between.

Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith, "FedDANE: A Federated Newton-Type Method", Asilomar 2019,
arXiv:2001.01920.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Moved
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    control: Vector  # c of the current round


class Survey(NamedTuple):
    gradient: Vector


class LocalState(NamedTuple):
    correction: Vector  # c − ∇f_i(x)


@final
@dataclass(frozen=True)
class FedDANE(Algorithm[ServerState, ServerState, Nothing, Moved]):
    """FedDANE; see the module's docstring."""

    mu: float = 0.01  # strength of the proximal term, at least 0

    paper = "Li et al., Asilomar 2019, arXiv:2001.01920"

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ValueError(f"mu must be at least 0, got {self.mu}; the paper uses 0 to 0.1")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def survey(self, full_gradient: Gradient, params: Vector, kept: Nothing) -> Survey:
        return Survey(full_gradient(params))

    def merge(self, server: ServerState, mean: Survey, round: Round) -> ServerState:
        return server._replace(control=mean.gradient)

    def init_local(self, full_gradient: Gradient, sent: ServerState, kept: Nothing) -> LocalState:
        return LocalState(sent.control - full_gradient(sent.params))

    def step(
        self, gradient: Gradient, params: Vector, sent: ServerState, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        return gradient(params) + local.correction + self.mu * (params - sent.params), local

    def report(self, run: LocalRun, sent: ServerState, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept

    def update(self, server: ServerState, mean: Moved, round: Round) -> ServerState:
        return server._replace(params=server.params - round.server_lr * mean.moved)
