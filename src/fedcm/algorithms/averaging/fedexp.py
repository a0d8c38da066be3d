"""FedExP: the server steps further than the mean if the clients' movements disagree.

    client   y ← y − η_l·g                             K_i times from y = x
    report   moved = x − y,  square = ‖moved‖²
    server   e = max(1, mean(square) / (2·(‖mean(moved)‖² + ε)))
             x ← x − s·e·mean(moved)

The paper evaluates the mean of the last two models; here the last one is evaluated.

Jhunjhunwala, Wang & Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

from fedcm.algorithms.messages import Model
from fedcm.core.algorithm import Algorithm, LocalRun, Nothing, Round, Vector


class Report(NamedTuple):
    moved: Vector
    square: Vector  # (1,)


@final
@dataclass(frozen=True)
class FedExP(Algorithm[Model, Model, Nothing, Report]):
    """FedExP; see the module's docstring."""

    epsilon: float = 0.001  # above 0; limits the extrapolation when the mean movement is small

    paper = "Jhunjhunwala et al., ICLR 2023"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be above 0, got {self.epsilon}; the paper uses 0.001")

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: Model) -> Model:
        return server

    def report(self, run: LocalRun, sent: Model, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved, run.moved.square().sum(-1, keepdim=True)), kept

    def update(self, server: Model, mean: Report, round: Round) -> Model:
        square = mean.moved.square().sum(-1, keepdim=True)
        extrapolation = (mean.square / (2 * (square + self.epsilon))).clamp(min=1)
        return Model(server.params - round.server_lr * extrapolation * mean.moved)
