"""FedSWA: the learning rate falls within every round, and the server steps further than the mean.

    client   η_k = η_l·(1 − (1−ρ)·k/K_i),  y ← y − η_k·g       for k = 0 … K_i − 1 from y = x
    report   moved = x − y
    server   x ← x − s·α·mean(moved)

ρ = α = 1 is FedAvg.

Liu, Liu, Shang, Liu, Liu & Feng, "Improving Generalization in Federated Learning with Highly Heterogeneous Data via
Momentum-Based Stochastic Controlled Weight Averaging", ICML 2025, arXiv:2507.20016.
"""

from dataclasses import dataclass
from typing import final

from fedcm.algorithms.bases import AveragingServer
from fedcm.algorithms.messages import Model, Moved
from fedcm.core.algorithm import Gradient, Nothing, Round, Step, Vector


@final
@dataclass(frozen=True)
class FedSWA(AveragingServer):
    """FedSWA; see the module's docstring."""

    rho: float = 0.1  # the rate to which η_l falls within a round, over η_l, in [0, 1]
    alpha: float = 1.5  # step of the server along the mean movement, above 0

    paper = "Liu et al., ICML 2025, arXiv:2507.20016"

    def __post_init__(self) -> None:
        if not (0 <= self.rho <= 1 and self.alpha > 0):
            raise ValueError(f"rho must be at least 0 and at most 1, and alpha above 0, got {self}")

    def step(
        self, gradient: Gradient, params: Vector, sent: Model, kept: Nothing, local: Nothing, step: Step
    ) -> tuple[Vector, Nothing]:
        return (1 - (1 - self.rho) * step.index / step.count) * gradient(params), local

    def update(self, server: Model, mean: Moved, round: Round) -> Model:
        return Model(server.params - round.server_lr * self.alpha * mean.moved)
