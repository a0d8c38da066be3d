"""Local AdaAlter: local steps of Adagrad with an accumulator that is fixed during the round and averaged after it.

    client   y ← y − η_l·g / √(h + ε),  a ← a + g²             K_i times from y = x, a = 0
    report   moved = x − y,  squares = a
    server   x ← x − s·mean(moved),  h ← h + mean(squares)       h starts at 0

The authors use ε = 1e-7 after a warm-up that fills h. Without a warm-up, such an ε makes the first steps thousands of
times too long; ε = 1 does not.

Xie, Koyejo, Gupta & Lin, "Local AdaAlter: Communication-Efficient Stochastic Gradient Descent with Adaptive Learning
Rates", 2019, arXiv:1911.09030. The equations are those of the authors' code.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    accumulator: Vector  # h


class LocalState(NamedTuple):
    squares: Vector


class Report(NamedTuple):
    moved: Vector
    squares: Vector


@final
@dataclass(frozen=True)
class AdaAlter(Algorithm[ServerState, ServerState, Nothing, Report]):
    """Local AdaAlter; see the module's docstring."""

    epsilon: float = 1.0  # above 0; the smaller, the more adaptive, and the longer the first steps

    paper = "Xie et al., 2019, arXiv:1911.09030"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be above 0, got {self.epsilon}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def init_local(self, full_gradient: Gradient, sent: ServerState, kept: Nothing) -> LocalState:
        return LocalState(torch.zeros_like(sent.params))

    def step(
        self, gradient: Gradient, params: Vector, sent: ServerState, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        slope = gradient(params)
        return slope / (sent.accumulator + self.epsilon).sqrt(), LocalState(local.squares + slope.square())

    def report(self, run: LocalRun, sent: ServerState, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved, run.local.squares), kept

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        return ServerState(server.params - round.server_lr * mean.moved, server.accumulator + mean.squares)
