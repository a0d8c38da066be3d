"""FedDyn: a linear and a proximal term change each client's loss so that its minimum is the global minimum.

    client   y ← y − η_l·(g − h_i + a·(y − x))           K_i times from y = x
             h_i ← h_i + a·(x − y)
    report   moved = x − y
    server   h ← h + a·(S/N)·mean(moved),  x ← x − s·(mean(moved) + h/a)        s = 1 in the paper

Invariant: h is the mean of all N h_i, where h_i = 0 until a client takes part. Some public code stores −h_i instead.

Acar, Zhao, Matas, Mattina, Whatmough & Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR 2021.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x
    correction: Vector  # h


class Broadcast(NamedTuple):
    params: Vector  # x, where the clients start


class ClientState(NamedTuple):
    correction: Vector  # h_i


class Report(NamedTuple):
    moved: Vector  # x − y, from the start to the end of the local steps


@final
@dataclass(frozen=True)
class FedDyn(Algorithm[ServerState, Broadcast, ClientState, Report]):
    """FedDyn: dynamic regularisation; the module's docstring has the formulas."""

    alpha: float = 0.01  # strength of the proximal term, above 0

    paper = "Acar et al., ICLR 2021"

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"alpha must be above 0, got {self.alpha}; the papers use 0.001 to 0.1")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(torch.zeros_like(params))

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.params)

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState) -> Vector:
        return gradient(params) - kept.correction + self.alpha * (params - sent.params)

    def report(self, run: LocalRun, sent: Broadcast, kept: ClientState) -> tuple[Report, ClientState]:
        return Report(run.moved), ClientState(kept.correction + self.alpha * run.moved)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        correction = server.correction + self.alpha * round.cohort_size / round.population * mean.moved
        params = server.params - round.server_lr * (mean.moved + correction / self.alpha)
        return ServerState(params, correction)
