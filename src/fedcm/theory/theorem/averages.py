"""The sequence z_t and the averages of it that the theorem bounds.

z_t = x_t + ((1 − α)/α)·(x_t − x_{t−1}),  x_{−1} = x_0        FedCM; without momentum z_t = x_t
w_t ∝ q^{−t−1},  q = 1 − μη_g/2                               strongly convex; equal weights at q = 1
"""

from typing import Any, final

import torch
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.core.algorithm import Algorithm


def compute_z(now: Tensor, before: Tensor, alpha: float) -> Tensor:
    """Return z_t from x_t and x_{t−1}."""
    return now + (1 - alpha) / alpha * (now - before)


def get_momentum_weight(algorithm: Algorithm[Any, Any, Any, Any]) -> float:
    """Return FedCM's α, or 1 for any other algorithm, which makes z_t = x_t."""
    return algorithm.alpha if isinstance(algorithm, FedCM) else 1.0


def compute_decay(strong_convexity: float, global_lr: float | Tensor) -> float | Tensor:
    """Return q, the factor between the weights of neighbouring rounds."""
    return 1 - strong_convexity * global_lr / 2


def compute_weights(rounds: int, q: float) -> Tensor:
    """Return w_0 … w_{T−1}, which add up to 1; only powers below 1 are formed, so nothing overflows."""
    powers = torch.tensor(q, dtype=torch.float64) ** torch.arange(rounds - 1, -1, -1, dtype=torch.float64)
    return powers / powers.sum()


@final
class WeightedAverage:
    """The running average Σ w_t z_t: after T points, the weights are those of the horizon T."""

    def __init__(self, q: Tensor) -> None:
        """Start an empty average; `q` broadcasts with the points."""
        self._q = q
        self._mass = torch.zeros_like(q)
        self.value: Tensor | None = None

    def add(self, point: Tensor) -> None:
        """Add the next z_t."""
        self._mass = self._mass * self._q + 1
        self.value = point if self.value is None else self.value + (point - self.value) / self._mass
