"""FedSpeed: FedDyn's correction with the gradient of FedSAM.

    client   e = ρ·g(y) / ‖g(y)‖,  y ← y − η_l·(g(y + e) + λ·(y − x − h_i))       K_i times from y = x
             h_i ← h_i + (x − y)
    report   moved = x − y
    server   h ← h + (S/N)·mean(moved),  x ← x − s·(mean(moved) + h)

Invariant: h is the mean of all N h_i, which are 0 at first. ρ = 0 is FedDyn with α = λ. The server is the one of the
authors' code; the paper averages over the cohort instead of all clients. The paper also mixes g(y) into the step.

Sun, Shen, Huang, Ding & Tao, "FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization
Accuracy", ICLR 2023, arXiv:2302.10429.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Model, Moved
from fedcm.algorithms.vectors import normalise
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector


class ServerState(NamedTuple):
    params: Vector
    correction: Vector


class ClientState(NamedTuple):
    correction: Vector


@final
@dataclass(frozen=True)
class FedSpeed(Algorithm[ServerState, Model, ClientState, Moved]):
    """FedSpeed; see the module's docstring."""

    strength: float = 0.1  # λ, strength of the proximal term, above 0; the paper's λ is one over it
    rho: float = 0.1  # radius of the perturbation, at least 0

    paper = "Sun et al., ICLR 2023, arXiv:2302.10429"

    def __post_init__(self) -> None:
        if not (self.strength > 0 and self.rho >= 0):
            raise ValueError(f"strength must be above 0, and rho at least 0, got {self}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(torch.zeros_like(params))

    def broadcast(self, server: ServerState) -> Model:
        return Model(server.params)

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: ClientState) -> Vector:
        slope = gradient(params + self.rho * normalise(gradient(params)))
        return slope + self.strength * (params - sent.params - kept.correction)

    def report(self, run: LocalRun, sent: Model, kept: ClientState) -> tuple[Moved, ClientState]:
        return Moved(run.moved), ClientState(kept.correction + run.moved)

    def update(self, server: ServerState, mean: Moved, round: Round) -> ServerState:
        correction = server.correction + round.cohort_size / round.population * mean.moved
        return ServerState(server.params - round.server_lr * (mean.moved + correction), correction)
