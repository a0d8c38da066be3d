"""FedSplit: Peaceman–Rachford splitting; every client takes a proximal step from the reflected point 2x − z_i.

    client   y ← y − η_l·(g + (y − (2x − z_i))/σ)      K_i times from y = 2x − z_i
             z_i ← z_i + 2·(y − x)
    report   moved = 2·(x − y), the change of z_i, uphill
    server   m ← m − (S/N)·mean(moved),  x ← x + s·(m − x)       m starts at x

Invariant: m is the mean of all N z_i; they are x_0 at first. In the paper everyone takes part; here absent
clients count with their last z_i. The limit is the optimum as far as the local steps solve their proximal problems.

Pathak & Wainwright, "FedSplit: An Algorithmic Framework for Fast Federated Optimization", NeurIPS 2020.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Model, Moved
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector


class ServerState(NamedTuple):
    params: Vector
    mean: Vector  # of all z_i


class ClientState(NamedTuple):
    point: Vector  # z_i


@final
@dataclass(frozen=True)
class FedSplit(Algorithm[ServerState, Model, ClientState, Moved]):
    """FedSplit; see the module's docstring."""

    sigma: float = 10.0  # above 0; 1/σ is the strength of the proximal term

    paper = "Pathak & Wainwright, NeurIPS 2020"

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma must be above 0, got {self.sigma}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, params)

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(params)

    def broadcast(self, server: ServerState) -> Model:
        return Model(server.params)

    def start(self, sent: Model, kept: ClientState) -> Vector:
        return 2 * sent.params - kept.point

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: ClientState) -> Vector:
        return gradient(params) + (params - self.start(sent, kept)) / self.sigma

    def report(self, run: LocalRun, sent: Model, kept: ClientState) -> tuple[Moved, ClientState]:
        moved = 2 * (sent.params - run.start + run.moved)  # 2·(x − y)
        return Moved(moved), ClientState(kept.point - moved)

    def update(self, server: ServerState, mean: Moved, round: Round) -> ServerState:
        everyone = server.mean - round.cohort_size / round.population * mean.moved
        return ServerState(torch.lerp(server.params, everyone, round.server_lr), everyone)
