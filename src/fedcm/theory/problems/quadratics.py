"""Heterogeneous quadratics with chosen constants: μ, L, σ_l, σ_g and x*.

    f_i(x) = ½ (x − x*)ᵀ A_i (x − x*) + ⟨b_i, x − x*⟩        Σ b_i = 0,  mean of ‖b_i‖² = σ_g²,  f* = 0
    A_i = diag(λ_j·(1 + ρ·u_ij))                             u_ij = ±1, equally often; ρ is `spread`

The eigenvalues of the A_i are in [μ, L], and both ends are reached.

`spread`: at 0 all A_i are equal. Then σ_g is exact at every x, local steps have no bias, and FedAvg converges to x*.
Above 0, σ_g is the dissimilarity at x*; it grows with the distance from x*.

`alignment`: the correlation of b_ij with u_ij. The bias of local steps is proportional to mean(A_i b_i), so at 0 it
would fall as 1/√N.

`copies`: how often the same clients are repeated. N grows, and f, σ_g and everything else stay the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.theory.problems.known_problem import Constants


@final
@dataclass(frozen=True)
class Quadratics:
    """Quadratics in d dimensions over N = distinct · copies clients.

    Raises:
        UserError: If no such problem exists.
    """

    distinct: int  # clients that differ from each other
    dimension: int
    strong_convexity: float  # μ ≥ 0
    smoothness: float  # L ≥ μ
    noise: float = 0.0  # σ_l
    dissimilarity: float = 0.0  # σ_g
    spread: float = 0.0  # ρ in [0, 1): how much the clients' curvatures differ
    alignment: float = 0.5  # in [0, 1]: correlation of a client's slope at x* with its curvature
    spectrum: Literal["geometric", "two"] = "geometric"  # λ from μ to L evenly on a log scale; or one L and the rest μ
    centre: float = 1.0  # every coordinate of x*
    copies: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        low, high = self._range
        if self.distinct < 1 or self.dimension < 1 or self.copies < 1:
            raise UserError(
                f"distinct, dimension and copies must be at least 1, got {self.distinct}, {self.dimension} and "
                f"{self.copies}"
            )
        if not 0 <= low <= high or high <= 0:
            raise UserError(
                f"μ, L and the spread ρ must satisfy 0 ≤ μ/(1 − ρ) ≤ L/(1 + ρ) and L > 0, got μ = "
                f"{self.strong_convexity}, L = {self.smoothness}, ρ = {self.spread}; lower the spread or μ"
            )
        if self.dimension == 1 and low != high:
            raise UserError(
                f"in 1 dimension μ/(1 − ρ) must equal L/(1 + ρ), got {low} and {high}; use at least 2 dimensions"
            )
        if self.distinct < 4 and (self.dissimilarity > 0 or self.spread > 0):
            raise UserError(
                f"distinct must be at least 4 if clients differ (σ_g or spread above 0), got {self.distinct}"
            )
        if min(self.noise, self.dissimilarity) < 0 or not 0 <= self.alignment <= 1:
            raise UserError(
                f"σ_l and σ_g must be at least 0 and the alignment in [0, 1], got {self.noise}, {self.dissimilarity} "
                f"and {self.alignment}"
            )

    @property
    def _range(self) -> tuple[float, float]:
        if not 0 <= self.spread < 1:
            raise UserError(f"the spread must be at least 0 and below 1, got {self.spread}")
        return self.strong_convexity / (1 - self.spread), self.smoothness / (1 + self.spread)

    @property
    def clients(self) -> int:
        return self.distinct * self.copies

    @property
    def constants(self) -> Constants:
        return Constants(self.strong_convexity, self.smoothness, self.noise, self.dissimilarity)

    @property
    def minimum(self) -> float:
        return 0.0

    @property
    def optimum(self) -> Tensor:
        return torch.full((self.dimension,), self.centre, dtype=torch.float64)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """λ, (d,): the eigenvalues of the mean of the A_i."""
        low, high = self._range
        if self.spectrum == "two":
            eigenvalues = np.full(self.dimension, low)
            eigenvalues[-1] = high
        elif low > 0:
            eigenvalues = np.geomspace(low, high, self.dimension)
        else:
            rest = np.geomspace(high / 4 ** (self.dimension - 2), high, self.dimension - 1)
            eigenvalues = np.concatenate([[0.0], rest])
        return torch.from_numpy(eigenvalues)

    @cached_property
    def _signs(self) -> np.ndarray:
        """u, (distinct, d): as many +1 as −1 in every coordinate; if their number is odd, one client has 0."""
        generator = make_generator(self.seed, Purpose.KNOWN_PROBLEM, client=1)
        half = self.distinct // 2
        column = np.concatenate([np.ones(half), -np.ones(half), np.zeros(self.distinct - 2 * half)])
        return np.stack([generator.permutation(column) for _ in range(self.dimension)], axis=1)

    @cached_property
    def curvatures(self) -> Tensor:
        """The diagonals of A_i, (distinct, d)."""
        return self.eigenvalues * (1 + self.spread * torch.from_numpy(self._signs))

    @cached_property
    def slopes(self) -> Tensor:
        """The b_i, (distinct, d)."""
        if self.dissimilarity == 0:
            return torch.zeros(self.distinct, self.dimension, dtype=torch.float64)
        generator = make_generator(self.seed, Purpose.KNOWN_PROBLEM, client=2)
        signs = self._signs
        other = generator.standard_normal(signs.shape)
        other -= other.mean(0)
        other -= signs * (other * signs).sum(0) / np.square(signs).sum(0)  # now exactly uncorrelated with the signs
        other -= other.mean(0)
        parts = [part / math.sqrt(np.square(part).sum(1).mean()) for part in (signs, other)]
        mixed = self.alignment * parts[0] + math.sqrt(1 - self.alignment**2) * parts[1]
        return torch.from_numpy(mixed * (self.dissimilarity / math.sqrt(np.square(mixed).sum(1).mean())))

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        originals = clients % self.distinct
        curvatures, slopes = self.curvatures[originals], self.slopes[originals]
        shifted = slopes - curvatures * self.optimum
        return lambda points: torch.addcmul(shifted, curvatures, points)

    def value(self, points: Tensor) -> Tensor:
        return 0.5 * (self.eigenvalues * (points - self.optimum).square()).sum(-1)

    def gradient(self, points: Tensor) -> Tensor:
        return self.eigenvalues * (points - self.optimum)
