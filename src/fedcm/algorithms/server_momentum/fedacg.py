"""FedACG: the server sends the model that it would reach by momentum alone, and clients start from there.

    server   sends x − λ·m                             m starts at 0
    client   y ← y − η_l·(g + 2β·(y − sent))           K_i times from y = sent
    report   moved = sent − y
    server   m ← λ·m + s·mean(moved),  x ← x − m

β = 0 is Nesterov's momentum at the server; λ = β = 0 is FedAvg. β multiplies ‖y − sent‖² without a factor ½, as in the
authors' code.

Kim, Kim & Han, "Communication-Efficient Federated Learning with Accelerated Client Gradient", CVPR 2024,
arXiv:2201.03172.
"""

from dataclasses import dataclass
from typing import final

from fedcm.algorithms.bases import AveragingServerWithMomentum
from fedcm.algorithms.messages import Model, ModelAndMomentum, Moved
from fedcm.core.algorithm import Gradient, Nothing, Round, Vector


@final
@dataclass(frozen=True)
class FedACG(AveragingServerWithMomentum):
    """FedACG; see the module's docstring."""

    decay: float = 0.85  # λ, decay of the momentum, in [0, 1)
    beta: float = 0.001  # strength of the proximal term, at least 0

    paper = "Kim et al., CVPR 2024, arXiv:2201.03172"

    def __post_init__(self) -> None:
        if not (0 <= self.decay < 1 and self.beta >= 0):
            raise ValueError(f"decay must be at least 0 and below 1, and beta at least 0, got {self}")

    def broadcast(self, server: ModelAndMomentum) -> Model:
        return Model(server.params - self.decay * server.momentum)

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: Nothing) -> Vector:
        return gradient(params) + 2 * self.beta * (params - sent.params)

    def update(self, server: ModelAndMomentum, mean: Moved, round: Round) -> ModelAndMomentum:
        momentum = self.decay * server.momentum + round.server_lr * mean.moved
        return ModelAndMomentum(server.params - momentum, momentum)
