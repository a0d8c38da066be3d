"""Ridge regression over clients of equal size, on the digits or on any features: the curvatures do not commute.

    f_i(x) = (1/2n) ‖X_i x − y_i‖² + (λ/2) ‖x‖²         μ, L: over all clients' eigenvalues of X_iᵀX_i/n + λI

Everything is exact: x* solves (mean of the curvatures) x = (mean of X_iᵀy_i/n) by Cholesky, with one refinement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from fedcm.refusal import Refused
from fedcm.theory.dealt_digits import dealt_digits
from fedcm.theory.known_problem import Constants, dissimilarity


@final
@dataclass(frozen=True, eq=False)
class Ridge:
    features: Tensor  # X, (N, n, d)
    targets: Tensor  # y, (N, n)
    penalty: float  # λ > 0
    noise: float = 0.0  # σ_l

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise Refused(f"the penalty must be positive, got {self.penalty}")

    @property
    def clients(self) -> int:
        return self.features.shape[0]

    @property
    def dimension(self) -> int:
        return self.features.shape[2]

    @cached_property
    def curvatures(self) -> Tensor:
        """(N, d, d)."""
        own = self.features.mT @ self.features / self.features.shape[1]
        return own + self.penalty * torch.eye(self.dimension, dtype=torch.float64)

    @cached_property
    def pulls(self) -> Tensor:
        """X_iᵀy_i/n, (N, d)."""
        return torch.einsum("nij,ni->nj", self.features, self.targets) / self.features.shape[1]

    @property
    def constants(self) -> Constants:
        return self._constants

    @cached_property
    def _constants(self) -> Constants:
        """σ_g is that at x*: it has no bound over all of space."""
        eigenvalues = torch.linalg.eigvalsh(self.curvatures)
        differ = float(dissimilarity(self, self.optimum[None]))
        return Constants(float(eigenvalues.min()), float(eigenvalues.max()), self.noise, differ)

    @property
    def optimum(self) -> Tensor:
        return self._optimum

    @cached_property
    def _optimum(self) -> Tensor:
        factor = torch.linalg.cholesky(self._curvature)
        x = torch.cholesky_solve(self.pulls.mean(0)[:, None], factor)[:, 0]
        return x - torch.cholesky_solve(self.gradient(x)[:, None], factor)[:, 0]

    @cached_property
    def _curvature(self) -> Tensor:
        return self.curvatures.mean(0)

    @cached_property
    def _constant(self) -> float:
        return 0.5 * float(self.targets.square().mean())

    @property
    def least(self) -> float:
        return self._least

    @cached_property
    def _least(self) -> float:
        return float(self.value(self.optimum))

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        curvatures, pulls = self.curvatures[clients], self.pulls[clients]
        return lambda points: torch.einsum("rsij,...rsj->...rsi", curvatures, points) - pulls

    def value(self, points: Tensor) -> Tensor:
        quadratic = 0.5 * ((points @ self._curvature) * points).sum(-1)
        return quadratic - points @ self.pulls.mean(0) + self._constant

    def gradient(self, points: Tensor) -> Tensor:
        return points @ self._curvature - self.pulls.mean(0)


def digits_ridge(clients: int = 20, penalty: float = 0.01, noise: float = 0.0, concentration: float = 0.3) -> Ridge:
    """Is a digit 5 or more, as a number to be fitted."""
    features, answers = dealt_digits(clients, concentration)
    return Ridge(features, answers, penalty, noise)
