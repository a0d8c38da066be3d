"""Variants of FedCM that were compared on validation data before one of them was bundled as `fedcm-anytime`.

    server   sends x, Δ and α_t
    client   v = α_t·g + (1−α_t)·Δ,  y ← y − η_l·v
    report   direction = mean of the vectors v
    server   Δ ← mean(direction),  x ← x − s·η_l·K·Δ,  x̄ ← x̄ + γ_t·(x − x̄)

`power` and `scale`: α_t = max(α, scale·(t+1)^−power), at most 1; power 0 is FedCM. `average`: γ_t = (k+1)/(t+k+1), and
x̄ is evaluated; 0 evaluates x. `adapt`: α_t is a moving average of the cosine between Δ and the round's mean gradient,
at least α. The search is search1.toml to search4.toml in this folder:

    cd docs/examples/momentum_search
    PYTHONPATH=. fedcm compare search1.toml --runs-dir runs
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x̄, or x
    iterate: Vector  # x
    momentum: Vector  # Δ
    alpha: Vector  # (1,)
    agreement: Vector  # (1,), moving average of cosines


class Broadcast(NamedTuple):
    params: Vector  # x
    momentum: Vector  # Δ
    alpha: Vector  # (1,)


class Report(NamedTuple):
    direction: Vector


@final
@dataclass(frozen=True)
class Variant(Algorithm[ServerState, Broadcast, Nothing, Report]):
    """FedCM with an α that changes and an average of the server's models; see the module's docstring."""

    alpha: float = 0.05  # α, the floor
    power: float = 1.0
    scale: float = 1.0
    average: float = 0.0  # k; 0: no average
    adapt: float = 0.0  # rate of the moving average; 0: none

    def init_server(self, params: Vector) -> ServerState:
        one = torch.ones(1, dtype=params.dtype)
        return ServerState(params, params, torch.zeros_like(params), self._compute_alpha(params, 0), one)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.iterate, server.momentum, server.alpha)

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: Nothing) -> Vector:
        return sent.momentum + sent.alpha * (gradient(params) - sent.momentum)

    def report(self, run: LocalRun, sent: Broadcast, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.mean_direction), kept

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        iterate = server.iterate - round.server_lr * round.client_lr * round.steps * mean.direction
        alpha, agreement = self._compute_alpha(iterate, round.index + 1), server.agreement
        if self.adapt:
            agreement = agreement + self.adapt * (self._measure_agreement(server, mean) - agreement)
            alpha = agreement.clamp(self.alpha, 1.0)
        params = iterate
        if self.average:
            share = (self.average + 1) / (round.index + 1 + self.average)
            params = torch.lerp(server.params, iterate, min(1.0, share))
        return ServerState(params, iterate, mean.direction, alpha, agreement)

    def _compute_alpha(self, like: Vector, index: int) -> Vector:
        fallen = self.alpha if self.power == 0 else max(self.alpha, self.scale * (index + 1) ** -self.power)
        return torch.full((1,), min(1.0, fallen), dtype=like.dtype)

    @staticmethod
    def _measure_agreement(server: ServerState, mean: Report) -> Vector:
        """Return the cosine between Δ and the round's mean gradient, at least 0; 1 in the first round."""
        gradient = (mean.direction - (1 - server.alpha) * server.momentum) / server.alpha
        lengths = gradient.norm() * server.momentum.norm()
        if float(lengths) == 0:
            return torch.ones_like(server.agreement)
        return (gradient @ server.momentum / lengths).clamp(0, 1).reshape(1)
