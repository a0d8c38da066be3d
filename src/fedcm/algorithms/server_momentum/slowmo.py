"""SlowMo: momentum at the server, in units of gradients, so that a change of η_l rescales it.

    client   y ← y − η_l·g                             K_i times from y = x
    report   moved = x − y
    server   u ← β·u + mean(moved)/η_l,  x ← x − s·η_l·u       u starts at 0

With a constant η_l this is FedAvgM.

Wang, Tantia, Ballas & Rabbat, "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum",
ICLR 2020.
"""

from dataclasses import dataclass
from typing import final

from fedcm.algorithms.bases import AveragingServerWithMomentum
from fedcm.algorithms.messages import ModelAndMomentum, Moved
from fedcm.core.algorithm import Round


@final
@dataclass(frozen=True)
class SlowMo(AveragingServerWithMomentum):
    """SlowMo; see the module's docstring."""

    beta: float = 0.5  # decay of the slow momentum, in [0, 1)

    paper = "Wang et al., ICLR 2020"

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta must be at least 0 and below 1, got {self.beta}; the paper uses 0.4 to 0.8")

    def update(self, server: ModelAndMomentum, mean: Moved, round: Round) -> ModelAndMomentum:
        momentum = self.beta * server.momentum + mean.moved / round.client_lr
        return ModelAndMomentum(server.params - round.server_lr * round.client_lr * momentum, momentum)
