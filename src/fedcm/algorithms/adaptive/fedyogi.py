"""FedYogi: FedAdam with a second moment that changes by at most (1−β2)·d² in a round.

    client   y ← y − η_l·g                             K_i times from y = x
    report   moved = x − y;  d = mean(moved)
    server   m ← β1·m + (1−β1)·d                       m starts at 0
             v ← v − (1−β2)·d²·sign(v − d²)            v starts at τ²
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
class FedYogi(AdaptiveServer):
    """FedYogi; see the module's docstring."""

    beta1: float = 0.9  # decay of the momentum, in [0, 1)
    beta2: float = 0.99  # decay of the second moment, in [0, 1)
    tau: float = 0.01  # above 0; the smaller, the more adaptive

    paper = "Reddi et al., ICLR 2021"

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and self.tau > 0):
            raise ValueError(f"beta1 and beta2 must be at least 0 and below 1, and tau above 0, got {self}")

    def update(self, server: AdaptiveState, mean: Moved, round: Round) -> AdaptiveState:
        momentum, square = torch.lerp(mean.moved, server.momentum, self.beta1), mean.moved.square()
        second_moment = server.second_moment - (1 - self.beta2) * square * (server.second_moment - square).sign()
        params = server.params - round.server_lr * momentum / (second_moment.sqrt() + self.tau)
        return AdaptiveState(params, momentum, second_moment)
