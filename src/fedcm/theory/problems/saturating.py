"""A smooth problem that is not convex, with a bounded gradient and a known minimum.

    f(x) = Σ_j x_j²/(1 + x_j²)         f_i(x) = f(x) + ⟨b_i, x⟩,  Σ b_i = 0,  mean of ‖b_i‖² = σ_g²

L = 2 (the curvature 2(1 − 3x²)/(1 + x²)³ is largest at 0), x* = 0, f* = 0, and ‖∇f‖ ≤ G = √d · 3√3/8 everywhere.
Far from x* the gradient fades, which no convex function allows. σ_g is exact at every x.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.theory.problems.known_problem import Constants


@final
@dataclass(frozen=True)
class Saturating:
    """Clients that share the saturating loss and differ in a linear term.

    Raises:
        UserError: If there are too few clients or dimensions.
    """

    clients: int
    dimension: int
    noise: float = 0.0  # σ_l
    dissimilarity: float = 0.0  # σ_g
    seed: int = 0

    def __post_init__(self) -> None:
        fewest = 2 if self.dissimilarity else 1
        if self.clients < fewest or self.dimension < 1:
            raise UserError(
                f"clients must be at least {fewest} and dimension at least 1, got {self.clients} and {self.dimension}"
            )

    @property
    def constants(self) -> Constants:
        return Constants(0.0, 2.0, self.noise, self.dissimilarity)

    @property
    def gradient_bound(self) -> float:
        """G. A coordinate's slope 2x/(1 + x²)² is largest at x = 1/√3."""
        return math.sqrt(self.dimension) * 3 * math.sqrt(3) / 8

    @property
    def minimum(self) -> float:
        return 0.0

    @property
    def optimum(self) -> Tensor:
        return torch.zeros(self.dimension, dtype=torch.float64)

    @cached_property
    def slopes(self) -> Tensor:
        """The b_i, (N, d)."""
        if self.dissimilarity == 0:
            return torch.zeros(self.clients, self.dimension, dtype=torch.float64)
        generator = make_generator(self.seed, Purpose.KNOWN_PROBLEM, client=3)
        slopes = generator.standard_normal((self.clients, self.dimension))
        slopes -= slopes.mean(0)
        return torch.from_numpy(slopes * (self.dissimilarity / math.sqrt(np.square(slopes).sum(1).mean())))

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        slopes = self.slopes[clients]
        return lambda points: self.gradient(points) + slopes

    def value(self, points: Tensor) -> Tensor:
        squares = points.square()
        return (squares / (1 + squares)).sum(-1)

    def gradient(self, points: Tensor) -> Tensor:
        return 2 * points / (1 + points.square()).square()
