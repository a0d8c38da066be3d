"""Ridge and logistic regression over clients of equal size, on the digits or on any features.

    f_i(x) = (1/n) Σ_j ℓ(⟨X_ij, x⟩, y_ij) + (λ/2) ‖x‖²

μ = λ + (least ℓ″)·(least eigenvalue of X_iᵀX_i/n over all clients); L is the same with the largest of both. x* is found
by Newton's method with step halving, until ‖∇f‖ no longer shrinks or is near rounding. ‖∇f(x)‖/μ bounds ‖x − x*‖.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from fedcm.errors import UserError
from fedcm.theory.problems.digits import load_client_digits
from fedcm.theory.problems.known_problem import Constants, compute_dissimilarity
from fedcm.theory.problems.losses import LOGISTIC, SQUARES, RegressionLoss

_PRECISION = 1e-10  # required of x*
_CLOSE_ENOUGH = 1e-13  # ‖∇f‖/λ at which Newton's method stops; rounding is usually near
_NEWTON_STEPS = 100


class _Solution(NamedTuple):
    optimum: Tensor
    minimum: float


@final
@dataclass(frozen=True, eq=False)
class Regression:
    """A regularised regression over N clients with n examples each.

    Raises:
        UserError: If the penalty is not positive or, on first use of x*, if x* cannot be found precisely enough.
    """

    loss: RegressionLoss
    features: Tensor  # X, (N, n, d)
    labels: Tensor  # y, (N, n)
    penalty: float  # λ > 0
    noise: float = 0.0  # σ_l

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise UserError(f"the penalty must be above 0, got {self.penalty}; without a penalty μ may be 0")

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
        """The constants; σ_g is taken at x*, since for the squared loss it has no bound over all of space."""
        eigenvalues = torch.linalg.eigvalsh(self.features.mT @ self.features / self.features.shape[1])
        strong = self.penalty + self.loss.least_curvature * max(
            float(eigenvalues.min()), 0.0
        )  # rounding can make it negative
        smooth = self.penalty + self.loss.largest_curvature * float(eigenvalues.max())
        return Constants(strong, smooth, self.noise, float(compute_dissimilarity(self, self.optimum[None])))

    @property
    def optimum(self) -> Tensor:
        return self._solution.optimum

    @property
    def minimum(self) -> float:
        return self._solution.minimum

    @cached_property
    def _solution(self) -> _Solution:
        x = torch.zeros(self.dimension, dtype=torch.float64)
        for _ in range(_NEWTON_STEPS):
            gradient = self.gradient(x)
            if float(gradient.norm()) <= _CLOSE_ENOUGH * self.penalty:
                break
            step = torch.linalg.solve(self._compute_hessian(x), gradient)
            nearer = next((y for k in range(40) if self.gradient(y := x - step / 2**k).norm() < gradient.norm()), None)
            if nearer is None:
                break
            x = nearer
        distance = float(self.gradient(x).norm()) / self.penalty  # bounds ‖x − x*‖, since μ ≥ λ
        if not distance <= _PRECISION:
            raise UserError(
                f"the minimum must be found to {_PRECISION:g}, but Newton's method reached {distance:.1g}; "
                "scale the features or raise the penalty"
            )
        return _Solution(x, float(self.value(x)))

    def _compute_hessian(self, x: Tensor) -> Tensor:
        features, labels = self._all_examples
        weighted = features * self.loss.curvature(features @ x, labels)[:, None]
        return weighted.mT @ features / len(features) + self.penalty * torch.eye(self.dimension, dtype=torch.float64)

    @cached_property
    def _all_examples(self) -> tuple[Tensor, Tensor]:
        """The examples of all clients, (N·n, d) and (N·n,)."""
        return self.features.reshape(-1, self.dimension), self.labels.reshape(-1)

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        features, labels = self.features[clients], self.labels[clients]

        def gradients(points: Tensor) -> Tensor:
            slopes = self.loss.slope(torch.einsum("rsnd,...rsd->...rsn", features, points), labels)
            return self.penalty * points + torch.einsum("rsnd,...rsn->...rsd", features, slopes) / features.shape[-2]

        return gradients

    def value(self, points: Tensor) -> Tensor:
        features, labels = self._all_examples
        return self.loss.value(points @ features.mT, labels).mean(-1) + 0.5 * self.penalty * points.square().sum(-1)

    def gradient(self, points: Tensor) -> Tensor:
        features, labels = self._all_examples
        return self.penalty * points + self.loss.slope(points @ features.mT, labels) @ features / len(features)


def make_digits_ridge(
    clients: int = 20, penalty: float = 0.01, noise: float = 0.0, concentration: float = 0.3
) -> Regression:
    """Make a ridge regression on the digits: fit +1 if a digit is 5 or more, otherwise −1."""
    return Regression(SQUARES, *load_client_digits(clients, concentration), penalty, noise)


def make_digits_logistic(
    clients: int = 20, penalty: float = 0.01, noise: float = 0.0, concentration: float = 0.3
) -> Regression:
    """Make a logistic regression on the digits: predict whether a digit is 5 or more."""
    return Regression(LOGISTIC, *load_client_digits(clients, concentration), penalty, noise)
