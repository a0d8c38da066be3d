"""FedSMOO: FedSpeed with perturbations that agree across clients, by a second dynamic regulariser.

    client   e = ρ·d/‖d‖ with d = g(y) − μ_i − r,  μ_i ← μ_i + e − r
             y ← y − η_l·(g(y + e) + λ·(y − x − h_i))          K_i times from y = x
             h_i ← h_i + (x − y)
    report   moved = x − y,  dual = μ_i
    server   h ← h + (S/N)·mean(moved),  x ← x − s·(mean(moved) + h),  r ← ρ·mean(dual) / ‖mean(dual)‖

Everything starts at 0. ρ = 0 is FedDyn with α = λ. The equations are those of the authors' code, which leaves out a
small term of the paper.

Sun, Shen, Chen, Ding & Tao, "Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching Global
Consistency and Smooth Landscape", ICML 2023, arXiv:2305.11584.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.vectors import normalise
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    correction: Vector  # h
    perturbation: Vector  # r


class Broadcast(NamedTuple):
    params: Vector
    perturbation: Vector


class ClientState(NamedTuple):
    correction: Vector  # h_i
    dual: Vector  # μ_i


class LocalState(NamedTuple):
    dual: Vector


class Report(NamedTuple):
    moved: Vector
    dual: Vector


@final
@dataclass(frozen=True)
class FedSMOO(Algorithm[ServerState, Broadcast, ClientState, Report]):
    """FedSMOO; see the module's docstring."""

    strength: float = 0.1  # λ, strength of the proximal term, above 0; the paper's λ is one over it
    rho: float = 0.1  # radius of the perturbation, at least 0

    paper = "Sun et al., ICML 2023, arXiv:2305.11584"

    def __post_init__(self) -> None:
        if not (self.strength > 0 and self.rho >= 0):
            raise ValueError(f"strength must be above 0, and rho at least 0, got {self}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params), torch.zeros_like(params))

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(torch.zeros_like(params), torch.zeros_like(params))

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.params, server.perturbation)

    def init_local(self, full_gradient: Gradient, sent: Broadcast, kept: ClientState) -> LocalState:
        return LocalState(kept.dual)

    def step(
        self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        perturbation = self.rho * normalise(gradient(params) - local.dual - sent.perturbation)
        slope = gradient(params + perturbation)
        direction = slope + self.strength * (params - sent.params - kept.correction)
        return direction, LocalState(local.dual + perturbation - sent.perturbation)

    def report(self, run: LocalRun, sent: Broadcast, kept: ClientState) -> tuple[Report, ClientState]:
        dual = run.local.dual
        return Report(run.moved, dual), ClientState(kept.correction + run.moved, dual)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        correction = server.correction + round.cohort_size / round.population * mean.moved
        params = server.params - round.server_lr * (mean.moved + correction)
        return ServerState(params, correction, self.rho * normalise(mean.dual))
