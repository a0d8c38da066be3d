"""FedAvg: clients take plain local steps; the server averages their final parameters.

    client   y ← y − η_l·g                 K_i times from y = x
    report   moved = x − y
    server   x ← x − s·mean(moved)         s = 1 is plain averaging

McMahan, Moore, Ramage, Hampson & Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017. The server learning rate s is from Reddi et al., ICLR 2021.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x


class Broadcast(NamedTuple):
    params: Vector  # x, where the clients start


class Report(NamedTuple):
    moved: Vector  # x − y, from the start to the end of the local steps


@final
@dataclass(frozen=True)
class FedAvg(Algorithm[ServerState, Broadcast, Nothing, Report]):
    """FedAvg, without hyperparameters; the module's docstring has the formulas."""

    paper = "McMahan et al., AISTATS 2017"

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.params)

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: Nothing) -> Vector:
        return gradient(params)

    def report(self, run: LocalRun, sent: Broadcast, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved), kept

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        return ServerState(server.params - round.server_lr * mean.moved)
