"""FedCM: every local step mixes the client's gradient with Δ, the mean direction of the previous round.

    client   v = α·g + (1−α)·Δ,  y ← y − η_l·v                  K_i times from y = x
    report   direction = (x − y) / (η_l·K_i), the mean of the K_i vectors v
    server   Δ ← mean(direction),  x ← x − s·η_l·K·Δ            K = mean of the K_i; s = 1 is plain averaging

Invariant: Δ_{t+1} = α·(mean minibatch gradient of the round) + (1−α)·Δ_t, also if η_l changes between rounds. With
unequal K_i, the mean direction of each client counts once. α = 1 is FedAvg if all K_i are equal.

Xu, Wang, Wang & Yao, "FedCM: Federated Learning with Client-level Momentum", 2021, arXiv:2106.10874.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x
    momentum: Vector  # Δ


class Broadcast(NamedTuple):
    params: Vector  # x, where the clients start
    momentum: Vector  # Δ


class Report(NamedTuple):
    direction: Vector  # mean of the local steps' v


@final
@dataclass(frozen=True)
class FedCM(Algorithm[ServerState, Broadcast, Nothing, Report]):
    """FedCM: global momentum in every local step; the module's docstring has the formulas."""

    alpha: float = 0.1  # weight of the client's gradient, in (0, 1]; Δ averages over about 1/α rounds

    paper = "Xu et al., 2021, arXiv:2106.10874"

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1, got {self.alpha}; 0.1 is a good start, 1 is FedAvg")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.params, server.momentum)

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: Nothing) -> Vector:
        return torch.lerp(sent.momentum, gradient(params), self.alpha)

    def report(self, run: LocalRun, sent: Broadcast, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.mean_direction), kept

    def public_part(self, sent: Broadcast, round: Round) -> Report:
        """Return (1 − α)·Δ; what is private is α times the mean gradient."""
        return Report((1 - self.alpha) * sent.momentum)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        step = round.server_lr * round.client_lr * round.steps
        return ServerState(server.params - step * mean.direction, mean.direction)

    def expected_report(self, sent: Broadcast) -> Report:
        return Report(sent.momentum)
