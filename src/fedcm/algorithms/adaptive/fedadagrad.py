"""FedAdagrad: the server applies Adagrad to the mean movement as if it were a gradient.

    client   y ← y − η_l·g                             K_i times from y = x
    report   moved = x − y;  d = mean(moved)
    server   m ← β1·m + (1−β1)·d                       m starts at 0
             v ← v + d²                                v starts at τ²
             x ← x − s·m / (√v + τ)

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar & McMahan, "Adaptive Federated Optimization", ICLR 2021.
"""

from dataclasses import dataclass
from typing import final

import torch

from fedcm.algorithms.adaptive.server import AdaptiveServer, AdaptiveState
from fedcm.algorithms.messages import Moved
from fedcm.core.algorithm import Round


@final
@dataclass(frozen=True)
class FedAdagrad(AdaptiveServer):
    """FedAdagrad; see the module's docstring."""

    beta1: float = 0.0  # decay of the momentum, in [0, 1)
    tau: float = 0.01  # above 0; the smaller, the more adaptive

    paper = "Reddi et al., ICLR 2021"

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and self.tau > 0):
            raise ValueError(f"beta1 must be at least 0 and below 1, and tau above 0, got {self}")

    def update(self, server: AdaptiveState, mean: Moved, round: Round) -> AdaptiveState:
        momentum = torch.lerp(mean.moved, server.momentum, self.beta1)
        second_moment = server.second_moment + mean.moved.square()
        params = server.params - round.server_lr * momentum / (second_moment.sqrt() + self.tau)
        return AdaptiveState(params, momentum, second_moment)
