"""FedSAM: every local step uses the gradient at a nearby point where the loss is higher.

    client   e = ρ·g(y) / ‖g(y)‖,  y ← y − η_l·g(y + e)       K_i times from y = x; both on the same minibatch
    report   moved = x − y
    server   x ← x − s·mean(moved)

Every step costs two gradients. ρ = 0 is FedAvg.

Qu, Li, Duan, Liu, Tang & Lu, "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022.
"""

from dataclasses import dataclass
from typing import final

from fedcm.algorithms.bases import AveragingServer
from fedcm.algorithms.messages import Model
from fedcm.algorithms.vectors import normalise
from fedcm.core.algorithm import Gradient, Nothing, Vector


@final
@dataclass(frozen=True)
class FedSAM(AveragingServer):
    """FedSAM; see the module's docstring."""

    rho: float = 0.01  # radius of the perturbation, at least 0

    paper = "Qu et al., ICML 2022"

    def __post_init__(self) -> None:
        if not self.rho >= 0:
            raise ValueError(f"rho must be at least 0, got {self.rho}; 0 is FedAvg")

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: Nothing) -> Vector:
        return gradient(params + self.rho * normalise(gradient(params)))
