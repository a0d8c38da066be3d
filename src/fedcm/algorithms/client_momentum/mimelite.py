"""MimeLite: every local step mixes the client's gradient with a momentum that the server computes from full gradients.

    client   y ← y − η_l·((1−β)·g + β·m)               K_i times from y = x; m is fixed during the round
    report   moved = x − y,  gradient = ∇f_i(x) over all data of the client
    server   x ← x − s·mean(moved),  m ← (1−β)·mean(gradient) + β·m       m starts at 0

The base optimiser is SGD with momentum. With one step on the full batch, MimeLite(β) is FedCM(α = 1−β).

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich & Suresh, "Mime: Mimicking Centralized Stochastic Algorithms in Federated
Learning", 2020, arXiv:2008.03606.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import ModelAndMomentum
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class Report(NamedTuple):
    moved: Vector
    gradient: Vector


@final
@dataclass(frozen=True)
class MimeLite(Algorithm[ModelAndMomentum, ModelAndMomentum, Nothing, Report]):
    """MimeLite; see the module's docstring."""

    beta: float = 0.9  # weight of the momentum in a step, in [0, 1)

    paper = "Karimireddy et al., 2020, arXiv:2008.03606"

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta must be at least 0 and below 1, got {self.beta}; 0.9 is usual, 0 is FedAvg")

    def init_server(self, params: Vector) -> ModelAndMomentum:
        return ModelAndMomentum(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ModelAndMomentum) -> ModelAndMomentum:
        return server

    def direction(self, gradient: Gradient, params: Vector, sent: ModelAndMomentum, kept: Nothing) -> Vector:
        return torch.lerp(gradient(params), sent.momentum, self.beta)

    def report(self, run: LocalRun, sent: ModelAndMomentum, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved, run.full_gradient(run.start)), kept

    def public_part(self, sent: ModelAndMomentum, round: Round) -> Report:
        """Return the movement by the momentum alone."""
        moved = round.client_lr * round.steps * self.beta * sent.momentum
        return Report(moved, torch.zeros_like(moved))

    def update(self, server: ModelAndMomentum, mean: Report, round: Round) -> ModelAndMomentum:
        momentum = torch.lerp(mean.gradient, server.momentum, self.beta)
        return ModelAndMomentum(server.params - round.server_lr * mean.moved, momentum)
