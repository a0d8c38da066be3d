"""FedAdam: clients take plain local steps; the server applies Adam to the mean movement as if it were a gradient.

    client   y ← y − η_l·g                             K_i times from y = x
    report   moved = x − y
    server   m ← β1·m + (1−β1)·mean(moved)             m starts at 0
             v ← β2·v + (1−β2)·mean(moved)²            v starts at τ²; no bias correction
             x ← x − s·m / (√v + τ)

Other implementations start v at 0 or correct the bias as Adam does; the paper does neither.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar & McMahan, "Adaptive Federated Optimization", ICLR 2021.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x
    momentum: Vector  # m
    second_moment: Vector  # v


class Broadcast(NamedTuple):
    params: Vector  # x, where the clients start


class Report(NamedTuple):
    moved: Vector  # x − y, from the start to the end of the local steps


@final
@dataclass(frozen=True)
class FedAdam(Algorithm[ServerState, Broadcast, Nothing, Report]):
    """FedAdam: Adam on the server; the module's docstring has the formulas."""

    beta1: float = 0.9  # decay of the momentum, in [0, 1); the FedCM paper's α is 1 − β1
    beta2: float = 0.99  # decay of the second moment, in [0, 1)
    tau: float = 0.01  # above 0; the smaller, the more adaptive

    paper = "Reddi et al., ICLR 2021"

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and self.tau > 0):
            raise ValueError(f"beta1 and beta2 must be at least 0 and below 1, and tau above 0, got {self}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params), torch.full_like(params, self.tau**2))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.params)

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: Nothing) -> Vector:
        return gradient(params)

    def report(self, run: LocalRun, sent: Broadcast, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved), kept

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        momentum = torch.lerp(mean.moved, server.momentum, self.beta1)
        second_moment = torch.lerp(mean.moved.square(), server.second_moment, self.beta2)
        params = server.params - round.server_lr * momentum / (second_moment.sqrt() + self.tau)
        return ServerState(params, momentum, second_moment)
