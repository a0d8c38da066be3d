"""MFL: momentum in the local steps, which the server averages together with the models.

    client   d ← γ·d + g,  y ← y − η_l·d               K_i times from y = x, d = the mean momentum
    report   moved = x − y,  momentum = d
    server   x ← x − s·mean(moved),  d ← mean(momentum)      d starts at 0

γ = 0 is FedAvg.

Liu, Chen, Chen & Zhang, "Accelerating Federated Learning via Momentum Gradient Descent", IEEE Transactions on Parallel
and Distributed Systems 31(8), 2020, arXiv:1910.03197.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import ModelAndMomentum
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class LocalState(NamedTuple):
    momentum: Vector


class Report(NamedTuple):
    moved: Vector
    momentum: Vector


@final
@dataclass(frozen=True)
class MFL(Algorithm[ModelAndMomentum, ModelAndMomentum, Nothing, Report]):
    """MFL; see the module's docstring."""

    gamma: float = 0.5  # decay of the momentum, in [0, 1)

    paper = "Liu et al., TPDS 2020, arXiv:1910.03197"

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1:
            raise ValueError(f"gamma must be at least 0 and below 1, got {self.gamma}; the paper uses 0.5, 0 is FedAvg")

    def init_server(self, params: Vector) -> ModelAndMomentum:
        return ModelAndMomentum(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ModelAndMomentum) -> ModelAndMomentum:
        return server

    def init_local(self, full_gradient: Gradient, sent: ModelAndMomentum, kept: Nothing) -> LocalState:
        return LocalState(sent.momentum)

    def step(
        self, gradient: Gradient, params: Vector, sent: ModelAndMomentum, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        momentum = self.gamma * local.momentum + gradient(params)
        return momentum, LocalState(momentum)

    def report(self, run: LocalRun, sent: ModelAndMomentum, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved, run.local.momentum), kept

    def public_part(self, sent: ModelAndMomentum, round: Round) -> Report:
        """Return the movement by the momentum alone, and what is left of it."""
        left = self.gamma**round.steps
        total = self.gamma * (1 - left) / (1 - self.gamma)  # γ + γ² + … + γ^K
        return Report(round.client_lr * total * sent.momentum, left * sent.momentum)

    def update(self, server: ModelAndMomentum, mean: Report, round: Round) -> ModelAndMomentum:
        return ModelAndMomentum(server.params - round.server_lr * mean.moved, mean.momentum)
