"""FedAc: accelerated local SGD, with two coupled sequences that the server averages.

    client   m = w/β + (1 − 1/β)·y                     the point of the gradient
             y ← m − η_l·g(m),  w ← (1 − 1/α)·w + m/α − γ·η_l·g(m)        K_i times from the averages y = x, w
    report   moved = x − y,  anchor_moved = w before − w after
    server   x ← x − s·mean(moved),  w ← w − s·mean(anchor_moved)         w starts at x

γ is a multiple of η_l here. The paper chooses, for strong convexity μ, γ·η_l = max(√(η_l/(μ·K)), η_l),
α = 1/(γ·η_l·μ) and β = α + 1. α = β = γ = 1 is FedAvg.

Yuan & Ma, "Federated Accelerated Stochastic Gradient Descent", NeurIPS 2020.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    anchor: Vector  # w


class LocalState(NamedTuple):
    anchor: Vector


class Report(NamedTuple):
    moved: Vector
    anchor_moved: Vector


@final
@dataclass(frozen=True)
class FedAc(Algorithm[ServerState, ServerState, Nothing, Report]):
    """FedAc; see the module's docstring."""

    alpha: float = 5.0  # at least 1; 1/α pulls w to the point of the gradient
    beta: float = 6.0  # at least 1; 1/β is the weight of w in the point of the gradient
    gamma: float = 2.0  # step size of w over η_l, at least 1

    paper = "Yuan & Ma, NeurIPS 2020"

    def __post_init__(self) -> None:
        if not (self.alpha >= 1 and self.beta >= 1 and self.gamma >= 1):
            raise ValueError(f"alpha, beta and gamma must be at least 1, got {self}")

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def init_local(self, full_gradient: Gradient, sent: ServerState, kept: Nothing) -> LocalState:
        return LocalState(sent.anchor)

    def step(
        self, gradient: Gradient, params: Vector, sent: ServerState, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        point = local.anchor / self.beta + (1 - 1 / self.beta) * params
        slope = gradient(point)
        anchor = (1 - 1 / self.alpha) * local.anchor + point / self.alpha - self.gamma * step.client_lr * slope
        return (params - point) / step.client_lr + slope, LocalState(anchor)

    def report(self, run: LocalRun, sent: ServerState, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved, sent.anchor - run.local.anchor), kept

    def public_part(self, sent: ServerState, round: Round) -> Report:
        """Return how far the two sequences pull each other in K steps without a gradient."""
        params, anchor = sent
        for _ in range(int(round.steps)):
            params = anchor / self.beta + (1 - 1 / self.beta) * params
            anchor = (1 - 1 / self.alpha) * anchor + params / self.alpha
        return Report(sent.params - params, sent.anchor - anchor)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        return ServerState(
            server.params - round.server_lr * mean.moved, server.anchor - round.server_lr * mean.anchor_moved
        )
