"""FedMoSWA: FedSWA with control variates; the server's control is a moving average, which acts as momentum.

    client   η_k = η_l·(1 − (1−ρ)·k/K_i),  y ← y − η_k·(g − c_i + m)       for k = 0 … K_i − 1 from y = x
             c_i⁺ = c_i − m + (x − y) / Σ_k η_k
    report   moved = x − y,  control_change = c_i⁺ − m
    server   x ← x − s·α·mean(moved),  m ← m + γ·mean(control_change)       m and c_i start at 0

ρ = α = γ = 1 is SCAFFOLD, option II, if everyone takes part.

Liu, Liu, Shang, Liu, Liu & Feng, "Improving Generalization in Federated Learning with Highly Heterogeneous Data via
Momentum-Based Stochastic Controlled Weight Averaging", ICML 2025, arXiv:2507.20016.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    control: Vector  # m


class ClientState(NamedTuple):
    control: Vector  # c_i


class Report(NamedTuple):
    moved: Vector
    control_change: Vector


@final
@dataclass(frozen=True)
class FedMoSWA(Algorithm[ServerState, ServerState, ClientState, Report]):
    """FedMoSWA; see the module's docstring."""

    rho: float = 0.1  # the rate to which η_l falls within a round, over η_l, in [0, 1]
    alpha: float = 1.5  # step of the server along the mean movement, above 0
    gamma: float = 0.2  # step of the server's control, in (0, 1]

    paper = "Liu et al., ICML 2025, arXiv:2507.20016"

    def __post_init__(self) -> None:
        if not (0 <= self.rho <= 1 and self.alpha > 0 and 0 < self.gamma <= 1):
            raise ValueError(
                f"rho must be at least 0 and at most 1, alpha above 0, and gamma above 0 and at most 1, got {self}"
            )

    @property
    def has_step_factors(self) -> bool:
        """No, because Σ_k η_k is computed for its own factors alone."""
        return False

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(torch.zeros_like(params))

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def step(
        self, gradient: Gradient, params: Vector, sent: ServerState, kept: ClientState, local: tuple, step: Step
    ) -> tuple[Vector, tuple]:
        factor = 1 - (1 - self.rho) * step.index / step.count
        return factor * (gradient(params) - kept.control + sent.control), local

    def report(self, run: LocalRun, sent: ServerState, kept: ClientState) -> tuple[Report, ClientState]:
        factors = run.steps - (1 - self.rho) * (run.steps - 1) / 2  # Σ_k η_k / η_l
        control = kept.control - sent.control + run.direction_sum / factors
        return Report(run.moved, control - sent.control), ClientState(control)

    def public_part(self, sent: ServerState, round: Round) -> Report:
        """Return the movement by m alone, and −m."""
        factors = round.steps - (1 - self.rho) * (round.steps - 1) / 2  # Σ_k η_k / η_l
        return Report(round.client_lr * factors * sent.control, -sent.control)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        params = server.params - round.server_lr * self.alpha * mean.moved
        return ServerState(params, server.control + self.gamma * mean.control_change)
