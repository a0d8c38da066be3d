"""Ridge and logistic regression over clients of equal size, on the digits or on any features.

    f_i(x) = (1/n) Σ_j ℓ(⟨X_ij, x⟩, y_ij) + (λ/2) ‖x‖²

μ = λ + (least ℓ″)·(least eigenvalue of X_iᵀX_i/n over all clients), L the same with the largest of both. x* is found by
Newton's method with halving, until ‖∇f‖, over μ a bound on what is missing, no longer shrinks or is nearly rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from fedcm.errors import UserError
from fedcm.theory.problems.dealt_digits import dealt_digits
from fedcm.theory.problems.known_problem import Constants, dissimilarity
from fedcm.theory.problems.losses import LOGISTIC, SQUARES, Loss

_PRECISION = 1e-10  # of x*
_ENOUGH = 1e-13  # where rounding begins, mostly
_ATTEMPTS = 100


class _Solved(NamedTuple):
    optimum: Tensor
    least: float


@final
@dataclass(frozen=True, eq=False)
class Regression:
    loss: Loss
    features: Tensor  # X, (N, n, d)
    answers: Tensor  # y, (N, n)
    penalty: float  # λ > 0
    noise: float = 0.0  # σ_l

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise UserError(f"the penalty of a regression must be positive, got {self.penalty}; without one μ may be 0")

    @property
    def clients(self) -> int:
        return self.features.shape[0]

    @property
    def dimension(self) -> int:
        return self.features.shape[2]

    @property
    def constants(self) -> Constants:
        return self._constants

    @cached_property
    def _constants(self) -> Constants:
        """σ_g is that at x*: of squares it has no bound over all of space."""
        eigenvalues = torch.linalg.eigvalsh(self.features.mT @ self.features / self.features.shape[1])
        strong = self.penalty + self.loss.least_curvature * max(float(eigenvalues.min()), 0.0)  # rounding may be below
        smooth = self.penalty + self.loss.largest_curvature * float(eigenvalues.max())
        return Constants(strong, smooth, self.noise, float(dissimilarity(self, self.optimum[None])))

    @property
    def optimum(self) -> Tensor:
        return self._solved.optimum

    @property
    def least(self) -> float:
        return self._solved.least

    @cached_property
    def _solved(self) -> _Solved:
        x = torch.zeros(self.dimension, dtype=torch.float64)
        for _ in range(_ATTEMPTS):
            slope = self.gradient(x)
            if float(slope.norm()) <= _ENOUGH * self.penalty:
                break
            step = torch.linalg.solve(self._curvature(x), slope)
            nearer = next((y for k in range(40) if self.gradient(y := x - step / 2**k).norm() < slope.norm()), None)
            if nearer is None:
                break
            x = nearer
        away = float(self.gradient(x).norm()) / self.penalty  # at least ‖x − x*‖, since μ ≥ λ
        if not away <= _PRECISION:
            raise UserError(
                f"the minimum of a regression must be found to {_PRECISION:g}, got to {away:.1g} by Newton's method; "
                "scale the features or raise the penalty"
            )
        return _Solved(x, float(self.value(x)))

    def _curvature(self, x: Tensor) -> Tensor:
        features, answers = self._all
        weighted = features * self.loss.curvature(features @ x, answers)[:, None]
        return weighted.mT @ features / len(features) + self.penalty * torch.eye(self.dimension, dtype=torch.float64)

    @cached_property
    def _all(self) -> tuple[Tensor, Tensor]:
        """Everybody's examples, (N·n, d) and (N·n,)."""
        return self.features.reshape(-1, self.dimension), self.answers.reshape(-1)

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        features, answers = self.features[clients], self.answers[clients]

        def at(points: Tensor) -> Tensor:
            slopes = self.loss.slope(torch.einsum("rsnd,...rsd->...rsn", features, points), answers)
            return self.penalty * points + torch.einsum("rsnd,...rsn->...rsd", features, slopes) / features.shape[-2]

        return at

    def value(self, points: Tensor) -> Tensor:
        features, answers = self._all
        return self.loss.value(points @ features.mT, answers).mean(-1) + 0.5 * self.penalty * points.square().sum(-1)

    def gradient(self, points: Tensor) -> Tensor:
        features, answers = self._all
        return self.penalty * points + self.loss.slope(points @ features.mT, answers) @ features / len(features)


def digits_ridge(
    clients: int = 20, penalty: float = 0.01, noise: float = 0.0, concentration: float = 0.3
) -> Regression:
    """Is a digit 5 or more, as a number to be fitted."""
    return Regression(SQUARES, *dealt_digits(clients, concentration), penalty, noise)


def digits_logistic(
    clients: int = 20, penalty: float = 0.01, noise: float = 0.0, concentration: float = 0.3
) -> Regression:
    """Is a digit 5 or more."""
    return Regression(LOGISTIC, *dealt_digits(clients, concentration), penalty, noise)
