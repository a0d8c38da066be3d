"""FedAvgM: the server applies momentum to the mean movement.

    client   y ← y − η_l·g                             K_i times from y = x
    report   moved = x − y
    server   m ← β·m + mean(moved),  x ← x − s·m       m starts at 0

With one step per round and a constant η_l, FedAvgM(β = 1−α) with s = α is FedCM(α).

Hsu, Qi & Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019,
arXiv:1909.06335.
"""

from dataclasses import dataclass
from typing import final

from fedcm.algorithms.bases import AveragingServerWithMomentum
from fedcm.algorithms.messages import ModelAndMomentum, Moved
from fedcm.core.algorithm import Round


@final
@dataclass(frozen=True)
class FedAvgM(AveragingServerWithMomentum):
    """FedAvgM; see the module's docstring."""

    beta: float = 0.9  # decay of the momentum, in [0, 1)

    paper = "Hsu et al., 2019, arXiv:1909.06335"

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta must be at least 0 and below 1, got {self.beta}; 0.9 is usual, 0 is FedAvg")

    def update(self, server: ModelAndMomentum, mean: Moved, round: Round) -> ModelAndMomentum:
        momentum = self.beta * server.momentum + mean.moved
        return ModelAndMomentum(server.params - round.server_lr * momentum, momentum)
