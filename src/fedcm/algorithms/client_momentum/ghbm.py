"""GHBM: heavy-ball momentum in every local step, computed from the models of the last τ rounds.

    client   y ← y − η_l·(g + β·m / (η_l·K_i))         K_i times from y = x; so m moves a client by β·m in a round
    report   moved = x − y
    server   x ← x − s·mean(moved),  m ← (x_{t−τ} − x_t) / τ       m = 0 in the first τ rounds

With a constant η_l, equal K_i and s = 1, GHBM(τ = 1, β = 1−α) with the rate α·η_l is FedCM(α). A good τ is 1 over the
share of clients that take part, because then m averages over about all clients.

Zaccone, Karimireddy, Masone & Ciccone, "Communication-Efficient Federated Learning with Generalized Heavy-Ball
Momentum", 2023, arXiv:2311.18578.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import ModelAndMomentum, Moved
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    history: Vector  # (τ, P): the models before this one, the oldest first
    rounds: Vector  # (1,): the number of updates so far


@final
@dataclass(frozen=True)
class GHBM(Algorithm[ServerState, ModelAndMomentum, Nothing, Moved]):
    """GHBM; see the module's docstring."""

    beta: float = 0.9  # weight of the momentum, in [0, 1)
    tau: int = 10  # rounds that the momentum spans, at least 1

    paper = "Zaccone et al., 2023, arXiv:2311.18578"

    def __post_init__(self) -> None:
        if not (0 <= self.beta < 1 and isinstance(self.tau, int) and self.tau >= 1):
            raise ValueError(f"beta must be at least 0 and below 1, and tau a whole number from 1, got {self}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.stack([params] * self.tau, dim=-2), torch.zeros_like(params[..., :1]))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ModelAndMomentum:
        momentum = (server.history[..., 0, :] - server.params) / self.tau
        return ModelAndMomentum(server.params, torch.where(server.rounds < self.tau, 0.0, momentum))

    def step(
        self, gradient: Gradient, params: Vector, sent: ModelAndMomentum, kept: Nothing, local: Nothing, step: Step
    ) -> tuple[Vector, Nothing]:
        share = self.beta / (step.client_lr * step.count)
        return gradient(params) + share * sent.momentum, local

    def report(self, run: LocalRun, sent: ModelAndMomentum, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept

    def public_part(self, sent: ModelAndMomentum, round: Round) -> Moved:
        """Return the movement by the momentum alone."""
        return Moved(self.beta * sent.momentum)

    def update(self, server: ServerState, mean: Moved, round: Round) -> ServerState:
        history = torch.cat([server.history[..., 1:, :], server.params.unsqueeze(-2)], dim=-2)
        return ServerState(server.params - round.server_lr * mean.moved, history, server.rounds + 1)
