"""FedNova: every client's movement is divided by its number of effective steps, so that long runs do not dominate.

    client   u ← ρ·u + g,  y ← y − η_l·u               K_i times from y = x, u = 0
             a_i = Σ_k (1 − ρ^k) / (1 − ρ), k = 1 … K_i: the weight of all gradients in x − y;  a_i = K_i if ρ = 0
    report   normalised = (x − y) / a_i,  effective_steps = a_i
    server   x ← x − s·mean(effective_steps)·mean(normalised)

ρ = 0 is FedCM with α = 1; if all K_i are equal, both are FedAvg.

Wang, Liu, Liang, Joshi & Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from fedcm.algorithms.messages import Model
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector


class LocalState(NamedTuple):
    momentum: Vector


class Report(NamedTuple):
    normalised: Vector
    effective_steps: Vector  # (1,)


@final
@dataclass(frozen=True)
class FedNova(Algorithm[Model, Model, Nothing, Report]):
    """FedNova; see the module's docstring."""

    momentum: float = 0.0  # ρ of the local steps, in [0, 1)

    paper = "Wang et al., NeurIPS 2020"

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {self.momentum}; 0 is plain local SGD")

    @property
    def has_step_factors(self) -> bool:
        """Only without momentum, because a_i is computed for steps of equal length."""
        return self.momentum == 0

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: Model) -> Model:
        return server

    def init_local(self, full_gradient: Gradient, sent: Model, kept: Nothing) -> LocalState:
        return LocalState(torch.zeros_like(sent.params))

    def step(
        self, gradient: Gradient, params: Vector, sent: Model, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        momentum = self.momentum * local.momentum + gradient(params)
        return momentum, LocalState(momentum)

    def report(self, run: LocalRun, sent: Model, kept: Nothing) -> tuple[Report, Nothing]:
        effective = self._count_effective_steps(run.steps)
        return Report(run.moved / effective, effective), kept

    def _count_effective_steps(self, steps: Tensor) -> Tensor:
        rho = self.momentum
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)

    def public_part(self, sent: Model, round: Round) -> Report:
        """Return the effective steps, which are the same for every client."""
        effective = self._count_effective_steps(torch.full_like(sent.params[..., :1], round.steps))
        return Report(torch.zeros_like(sent.params), effective)

    def update(self, server: Model, mean: Report, round: Round) -> Model:
        return Model(server.params - round.server_lr * mean.effective_steps * mean.normalised)
