"""Logistic regression (yes or no) over clients of equal size, on the digits or on any features.

    f_i(x) = (1/n) Σ_j log(1 + exp(−y_ij ⟨X_ij, x⟩)) + (λ/2) ‖x‖²

μ = λ, and L = λ + the largest eigenvalue of X_iᵀX_i/(4n) over all clients: the curvature of the logistic loss lies in
(0, ¼]. x* is found by Newton's method with halving, until the gradient's norm is 1e-12 or no smaller norm is found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcm.refusal import Refused
from fedcm.theory.dealt_digits import dealt_digits
from fedcm.theory.known_problem import Constants, dissimilarity

_NORM = 1e-12
_ATTEMPTS = 100


@final
@dataclass(frozen=True, eq=False)
class Logistic:
    features: Tensor  # X, (N, n, d)
    answers: Tensor  # y, (N, n): +1 or −1
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

    @property
    def constants(self) -> Constants:
        return self._constants

    @cached_property
    def _constants(self) -> Constants:
        """σ_g is that at x*."""
        squares = self.features.mT @ self.features / (4 * self.features.shape[1])
        largest = float(torch.linalg.eigvalsh(squares).max())
        differ = float(dissimilarity(self, self.optimum[None]))
        return Constants(self.penalty, self.penalty + largest, self.noise, differ)

    @cached_property
    def _signed(self) -> Tensor:
        """y_ij X_ij, (N, n, d)."""
        return self.features * self.answers[..., None]

    @cached_property
    def _all(self) -> Tensor:
        return self._signed.reshape(-1, self.dimension)

    @property
    def optimum(self) -> Tensor:
        return self._optimum

    @cached_property
    def _optimum(self) -> Tensor:
        x = torch.zeros(self.dimension, dtype=torch.float64)
        for _ in range(_ATTEMPTS):
            slope = self.gradient(x)
            if float(slope.norm()) <= _NORM:
                break
            step = torch.linalg.solve(self._curvature(x), slope)
            nearer = next((y for k in range(40) if self.gradient(y := x - step / 2**k).norm() < slope.norm()), None)
            if nearer is None:
                break
            x = nearer
        return x

    def _curvature(self, x: Tensor) -> Tensor:
        chance = torch.sigmoid(self._all @ x)
        weighted = self._all * (chance * (1 - chance))[:, None]
        return weighted.mT @ self._all / len(self._all) + self.penalty * torch.eye(self.dimension, dtype=torch.float64)

    @property
    def least(self) -> float:
        return self._least

    @cached_property
    def _least(self) -> float:
        return float(self.value(self.optimum))

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        signed = self._signed[clients]

        def at(points: Tensor) -> Tensor:
            wrong = torch.sigmoid(-torch.einsum("rsnd,...rsd->...rsn", signed, points))
            pulled = torch.einsum("rsnd,...rsn->...rsd", signed, wrong)
            return self.penalty * points - pulled / signed.shape[-2]

        return at

    def value(self, points: Tensor) -> Tensor:
        return F.softplus(-points @ self._all.mT).mean(-1) + 0.5 * self.penalty * points.square().sum(-1)

    def gradient(self, points: Tensor) -> Tensor:
        return self.penalty * points - torch.sigmoid(-points @ self._all.mT) @ self._all / len(self._all)


def digits_logistic(
    clients: int = 20, penalty: float = 0.01, noise: float = 0.0, concentration: float = 0.3
) -> Logistic:
    """Is a digit 5 or more."""
    features, answers = dealt_digits(clients, concentration)
    return Logistic(features, answers, penalty, noise)
