"""FedCM-Anytime: FedCM whose momentum starts as a plain mean, and whose result is an average of the last models.

    server   sends x, Δ and α_t = max(α, 1/(t+1)) after t updates       Δ starts at 0
    client   v = α_t·g + (1−α_t)·Δ,  y ← y − η_l·v                      K_i times from y = x
    report   direction = (x − y) / (η_l·K_i), the mean of the K_i vectors v
    server   Δ ← mean(direction),  x ← x − s·η_l·K·Δ                    K = mean of the K_i; s = 1 is plain averaging
             x̄ ← x̄ + γ_t·(x − x̄),  γ_t = (k+1) / (t+1+k)               γ_0 = 1, so x̄ = x after the first update
    result   x̄, which is evaluated and saved; clients never receive it

In the first 1/α updates, Δ is the plain mean of all mean gradients so far, so it has no bias to 0 and no slow start.
Afterwards α_t = α, and x and Δ follow FedCM's recursion. x̄ weighs the models with a polynomial of degree k, so about
the last t/(k+1) of them count, without a horizon that must be known. k = 0 turns the averaging off: x̄ = x.
α = 1 without averaging is FedAvg if all K_i are equal.

This project's own method, unpublished; there is no paper. The average is that of Shamir & Zhang, "Stochastic Gradient
Descent for Non-smooth Optimization: Convergence Results and Optimal Averaging Schemes", ICML 2013.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x̄, the result
    iterate: Vector  # x
    momentum: Vector  # Δ
    updates: Vector  # (1,): t, the number of updates so far; rounds without a report are none


class Broadcast(NamedTuple):
    params: Vector  # x, where the clients start
    momentum: Vector  # Δ
    alpha: Vector  # (1,): α_t


class Report(NamedTuple):
    direction: Vector  # mean of the local steps' v


@final
@dataclass(frozen=True)
class FedCMAnytime(Algorithm[ServerState, Broadcast, Nothing, Report]):
    """FedCM-Anytime; see the module's docstring."""

    alpha: float = 0.05  # least weight of the client's gradient, in (0, 1]; Δ averages over at most about 1/α rounds
    average: float = 8.0  # degree k, at least 0; x̄ averages about the last t/(k+1) models; 0: no average, x̄ = x

    paper = "none: this project's own method"

    def __post_init__(self) -> None:
        if not (0 < self.alpha <= 1 and 0 <= self.average < math.inf):
            raise ValueError(
                f"alpha must be above 0 and at most 1, and average at least 0 and finite, got {self}; "
                "average = 0 turns the averaging off"
            )

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, params, torch.zeros_like(params), torch.zeros_like(params[..., :1]))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.iterate, server.momentum, (1 / (server.updates + 1)).clamp(min=self.alpha))

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: Nothing) -> Vector:
        return torch.lerp(sent.momentum, gradient(params), sent.alpha)

    def report(self, run: LocalRun, sent: Broadcast, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.mean_direction), kept

    def public_part(self, sent: Broadcast, round: Round) -> Report:
        """Return (1 − α_t)·Δ; what is private is α_t times the mean gradient."""
        return Report((1 - sent.alpha) * sent.momentum)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        step = round.server_lr * round.client_lr * round.steps
        iterate = server.iterate - step * mean.direction
        share = 1 / (1 + server.updates / (self.average + 1))  # γ; no term overflows if k is huge
        params = torch.lerp(server.params, iterate, share) if self.average else iterate
        return ServerState(params, iterate, mean.direction, server.updates + 1)

    def expected_report(self, sent: Broadcast) -> Report:
        return Report(sent.momentum)
