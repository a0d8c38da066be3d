"""MoFedSAM: FedCM with the gradient of FedSAM.

    client   e = ρ·g(y) / ‖g(y)‖,  v = α·g(y + e) + (1−α)·Δ,  y ← y − η_l·v       K_i times from y = x
    report   direction = mean of the K_i vectors v
    server   Δ ← mean(direction),  x ← x − s·η_l·K·Δ

Every step costs two gradients. ρ = 0 is FedCM.

Qu, Li, Duan, Liu, Tang & Lu, "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022.
"""

from dataclasses import dataclass
from typing import final

import torch

from fedcm.algorithms.bases import ClientMomentumServer
from fedcm.algorithms.messages import MeanDirection, ModelAndMomentum
from fedcm.algorithms.vectors import normalise
from fedcm.core.algorithm import Gradient, Nothing, Round, Vector


@final
@dataclass(frozen=True)
class MoFedSAM(ClientMomentumServer):
    """MoFedSAM; see the module's docstring."""

    alpha: float = 0.1  # weight of the client's gradient, in (0, 1]
    rho: float = 0.1  # radius of the perturbation, at least 0

    paper = "Qu et al., ICML 2022"

    def __post_init__(self) -> None:
        if not (0 < self.alpha <= 1 and self.rho >= 0):
            raise ValueError(f"alpha must be above 0 and at most 1, and rho at least 0, got {self}")

    def direction(self, gradient: Gradient, params: Vector, sent: ModelAndMomentum, kept: Nothing) -> Vector:
        perturbed = params + self.rho * normalise(gradient(params))
        return torch.lerp(sent.momentum, gradient(perturbed), self.alpha)

    def public_part(self, sent: ModelAndMomentum, round: Round) -> MeanDirection:
        """Return (1 − α)·Δ."""
        return MeanDirection((1 - self.alpha) * sent.momentum)
