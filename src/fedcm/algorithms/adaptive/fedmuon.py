"""FedMuon: local steps along the orthogonal factor of a momentum matrix, mixed with the last global direction.

    client   M ← β·M + g                               starts at the server's M
             d = (1−γ)·polar(M) + γ·Δ,  y ← y − η_l·d          K_i times from y = x
    report   moved = x − y,  matrix_momentum = M
    server   x ← x − s·mean(moved),  M ← mean(matrix_momentum),  Δ ← mean(moved) / (η_l·K)       all 0 at first

polar(M) is computed for every parameter with two or more dimensions, a convolution's kernel as (out, rest), by five
Newton–Schulz iterations that bring all singular values near 1. Other parameters, such as biases, take steps of Adam
(β 0.9 and 0.95) that starts anew in every round, or of SGD, in place of polar(M).

Liu, Shang, Zhou, Liu, Liu & Liu, "FedMuon: Accelerating Federated Learning with Matrix Orthogonalization", 2025,
arXiv:2510.27403. The authors' code has options beyond these equations (Nesterov, scaling by shape).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch

from fedcm.algorithms.orthogonalisation import orthogonalise_matrices
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector

_BETA1, _BETA2, _EPSILON = 0.9, 0.95, 1e-10  # Adam, for parameters that are not matrices


class ServerState(NamedTuple):
    params: Vector
    momentum: Vector  # Δ
    matrix_momentum: Vector  # M


class LocalState(NamedTuple):
    matrix_momentum: Vector
    first_moment: Vector  # of Adam
    second_moment: Vector


class Report(NamedTuple):
    moved: Vector
    matrix_momentum: Vector


@final
@dataclass(frozen=True)
class FedMuon(Algorithm[ServerState, ServerState, Nothing, Report]):
    """FedMuon; see the module's docstring."""

    gamma: float = 0.5  # weight of the last global direction, in [0, 1)
    beta: float = 0.98  # decay of the matrix momentum, in [0, 1)
    others: Literal["adam", "sgd"] = "adam"  # steps of parameters that are not matrices

    paper = "Liu et al., 2025, arXiv:2510.27403"

    def __post_init__(self) -> None:
        if not (0 <= self.gamma < 1 and 0 <= self.beta < 1 and self.others in ("adam", "sgd")):
            raise ValueError(f'gamma and beta must be at least 0 and below 1, and others "adam" or "sgd", got {self}')

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params), torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ServerState) -> ServerState:
        return server

    def init_local(self, full_gradient: Gradient, sent: ServerState, kept: Nothing) -> LocalState:
        zeros = torch.zeros_like(sent.params)
        return LocalState(sent.matrix_momentum, zeros, zeros)

    def step(
        self, gradient: Gradient, params: Vector, sent: ServerState, kept: Nothing, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        slope = gradient(params)
        matrix_momentum = self.beta * local.matrix_momentum + slope
        first, second, other = local.first_moment, local.second_moment, slope
        if self.others == "adam":
            first, second = torch.lerp(slope, first, _BETA1), torch.lerp(slope.square(), second, _BETA2)
            root = (second / (1 - _BETA2 ** (step.index + 1))).sqrt()
            other = first / (1 - _BETA1 ** (step.index + 1)) / (root + _EPSILON)
        own = orthogonalise_matrices(matrix_momentum, other, step.shapes)
        return torch.lerp(own, sent.momentum, self.gamma), LocalState(matrix_momentum, first, second)

    def report(self, run: LocalRun, sent: ServerState, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved, run.local.matrix_momentum), kept

    def public_part(self, sent: ServerState, round: Round) -> Report:
        """Return the movement by γ·Δ, and what is left of M after K steps; polar(M) would need the shapes."""
        moved = round.client_lr * round.steps * self.gamma * sent.momentum
        return Report(moved, self.beta**round.steps * sent.matrix_momentum)

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        params = server.params - round.server_lr * mean.moved
        return ServerState(params, mean.moved / (round.client_lr * round.steps), mean.matrix_momentum)
