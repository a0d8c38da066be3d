"""FedLADA: FedCM with AMSGrad in the local steps, whose second moment the server averages.

    client   m ← β1·m + (1−β1)·g,  v ← β2·v + (1−β2)·g²,  w ← max(w, v)
             d = α·m/√w + (1−α)·Δ,  y ← y − η_l·d              K_i times from y = x, m = 0, v = w = the server's v
    report   direction = mean of the K_i vectors d,  second_moment = w
    server   Δ ← mean(direction),  x ← x − s·η_l·K·Δ,  v ← mean(second_moment)       v starts at ε²

β1 = 0, β2 = 1 and ε = 1 is FedCM. The equations were checked in two public implementations, not the authors'.

Sun, Shen, Sun, Ding & Tao, "Efficient Federated Learning via Local Adaptive Amended Optimizer with Linear Speedup",
IEEE TPAMI 2023, arXiv:2308.00522.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class ServerState(NamedTuple):
    params: Vector
    momentum: Vector  # Δ
    second_moment: Vector  # v


class LocalState(NamedTuple):
    momentum: Vector  # m
    second_moment: Vector  # v
    largest: Vector  # w


class Report(NamedTuple):
    direction: Vector
    second_moment: Vector


@final
@dataclass(frozen=True)
class FedLADA(Algorithm[ServerState, ServerState, Nothing, Report]):
    """FedLADA; see the module's docstring."""

    alpha: float = 0.1  # weight of the client's adaptive step, in (0, 1]
    beta1: float = 0.9  # decay of the local momentum, in [0, 1)
    beta2: float = 0.99  # decay of the second moment, in [0, 1]
    epsilon: float = 1e-8  # root of the first second moment, above 0

    paper = "Sun et al., TPAMI 2023, arXiv:2308.00522"

    def __post_init__(self) -> None:
        if not (0 < self.alpha <= 1 and 0 <= self.beta1 < 1 and 0 <= self.beta2 <= 1 and self.epsilon > 0):
            raise ValueError(
                "alpha must be above 0 and at most 1, beta1 at least 0 and below 1, beta2 at least 0 and at most 1, "
                f"and epsilon above 0, got {self}"
            )

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params), torch.full_like(params, self.epsilon**2))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def init_local(self, full_gradient: Gradient, sent: ServerState, kept: Nothing) -> LocalState:
        second_moment = sent.second_moment.clamp(min=self.epsilon**2)  # a mean of tiny numbers is rounded to 0
        return LocalState(torch.zeros_like(sent.params), second_moment, second_moment)

    def step(
        self, gradient: Gradient, params: Vector, sent: ServerState, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        slope = gradient(params)
        momentum = torch.lerp(slope, local.momentum, self.beta1)
        second_moment = torch.lerp(slope.square(), local.second_moment, self.beta2)
        largest = torch.maximum(local.largest, second_moment)
        direction = torch.lerp(sent.momentum, momentum / largest.sqrt(), self.alpha)
        return direction, LocalState(momentum, second_moment, largest)

    def report(self, run: LocalRun, sent: ServerState, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.mean_direction, run.local.largest), kept

    def public_part(self, sent: ServerState, round: Round) -> Report:
        """Return (1 − α)·Δ and the second moment, which clients only increase."""
        return Report((1 - self.alpha) * sent.momentum, sent.second_moment.clamp(min=self.epsilon**2))

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        step = round.server_lr * round.client_lr * round.steps
        return ServerState(server.params - step * mean.direction, mean.direction, mean.second_moment)

    def expected_report(self, sent: ServerState) -> Report:
        return Report(sent.momentum, sent.second_moment)
