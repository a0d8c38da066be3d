"""FedPD: every client minimises an augmented Lagrangian of the consensus problem, from where it stopped last time.

    client   y ← y − η_l·(g + λ_i + (y − x)/σ)         K_i times from its own y_i
             λ_i ← λ_i + (y − x)/σ,  y_i ← y
    report   moved = change of y_i + σ·λ_i, uphill: old − new
    server   m ← m − (S/N)·mean(moved),  x ← x + s·(m − x)       m starts at x

Invariant: m is the mean of all N y_i + σ·λ_i; they are x_0 at first. The paper lets everyone take part and
skips the exchange with probability p; here every round has its exchange (p = 0), and absent clients count with their
last values. If local problems are solved exactly and everyone takes part, FedPD(σ) is FedDyn(α = 1/σ).

Zhang, Hong, Dhople, Yin & Liu, "FedPD: A Federated Learning Framework with Adaptivity to Non-IID Data", IEEE
Transactions on Signal Processing 69, 2021, arXiv:2005.11418.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Model, Moved
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector


class ServerState(NamedTuple):
    params: Vector
    mean: Vector  # of all y_i + σ·λ_i


class ClientState(NamedTuple):
    params: Vector  # y_i
    dual: Vector  # λ_i


@final
@dataclass(frozen=True)
class FedPD(Algorithm[ServerState, Model, ClientState, Moved]):
    """FedPD; see the module's docstring."""

    sigma: float = 10.0  # above 0; 1/σ is the strength of the proximal term

    paper = "Zhang et al., TSP 2021, arXiv:2005.11418"

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma must be above 0, got {self.sigma}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, params)

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(params, torch.zeros_like(params))

    def broadcast(self, server: ServerState) -> Model:
        return Model(server.params)

    def start(self, sent: Model, kept: ClientState) -> Vector:
        return kept.params

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: ClientState) -> Vector:
        return gradient(params) + kept.dual + (params - sent.params) / self.sigma

    def report(self, run: LocalRun, sent: Model, kept: ClientState) -> tuple[Moved, ClientState]:
        ahead = run.start - sent.params - run.moved  # y − x
        return Moved(run.moved - ahead), ClientState(run.start - run.moved, kept.dual + ahead / self.sigma)

    def update(self, server: ServerState, mean: Moved, round: Round) -> ServerState:
        everyone = server.mean - round.cohort_size / round.population * mean.moved
        return ServerState(torch.lerp(server.params, everyone, round.server_lr), everyone)
