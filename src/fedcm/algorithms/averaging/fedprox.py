"""FedProx: a proximal term pulls every local step back to the model that was sent.

    client   y ← y − η_l·(g + μ·(y − x))               K_i times from y = x
    report   moved = x − y
    server   x ← x − s·mean(moved)

μ = 0 is FedAvg.

Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020.
"""

from dataclasses import dataclass
from typing import final

from fedcm.algorithms.bases import AveragingServer
from fedcm.algorithms.messages import Model
from fedcm.core.algorithm import Gradient, Nothing, Vector


@final
@dataclass(frozen=True)
class FedProx(AveragingServer):
    """FedProx; see the module's docstring."""

    mu: float = 0.01  # strength of the proximal term, at least 0

    paper = "Li et al., MLSys 2020"

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ValueError(f"mu must be at least 0, got {self.mu}; the paper uses 0.001 to 1, 0 is FedAvg")

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: Nothing) -> Vector:
        return gradient(params) + self.mu * (params - sent.params)
