"""FedLESAM: FedSAM with a perturbation along the last movement of the global model, which costs no second gradient.

    client   y ← y − η_l·g(y + ρ·Δ/‖Δ‖)                K_i times from y = x
    report   moved = x − y
    server   Δ ← s·mean(moved) = x_{t−1} − x_t,  x ← x − Δ       Δ starts at 0

ρ = 0 is FedAvg. The paper's clients compute Δ from the models that they received in their last two rounds; here the
server sends the movement of the last round, so clients need no state.

Fan, Hu, Yao, Niu, Zhang, Sugiyama & Wang, "Locally Estimated Global Perturbations are Better than Local Perturbations
for Federated Sharpness-aware Minimization", ICML 2024.
"""

from dataclasses import dataclass
from typing import final

import torch

from fedcm.algorithms.messages import ModelAndMomentum, Moved
from fedcm.algorithms.vectors import normalise
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


@final
@dataclass(frozen=True)
class FedLESAM(Algorithm[ModelAndMomentum, ModelAndMomentum, Nothing, Moved]):
    """FedLESAM; see the module's docstring."""

    rho: float = 0.01  # radius of the perturbation, at least 0

    paper = "Fan et al., ICML 2024"

    def __post_init__(self) -> None:
        if not self.rho >= 0:
            raise ValueError(f"rho must be at least 0, got {self.rho}; 0 is FedAvg")

    def init_server(self, params: Vector) -> ModelAndMomentum:
        return ModelAndMomentum(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ModelAndMomentum) -> ModelAndMomentum:
        return server

    def direction(self, gradient: Gradient, params: Vector, sent: ModelAndMomentum, kept: Nothing) -> Vector:
        return gradient(params + self.rho * normalise(sent.momentum))

    def report(self, run: LocalRun, sent: ModelAndMomentum, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept

    def update(self, server: ModelAndMomentum, mean: Moved, round: Round) -> ModelAndMomentum:
        movement = round.server_lr * mean.moved
        return ModelAndMomentum(server.params - movement, movement)
