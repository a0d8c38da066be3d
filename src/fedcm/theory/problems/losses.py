"""The losses of the two regressions, as functions of a prediction p = ⟨X, x⟩ and its label y.

squares    ℓ = (p − y)²/2               ℓ″ = 1
logistic   ℓ = log(1 + exp(−y·p))       ℓ″ in (0, ¼], largest at p = 0;  y is +1 or −1
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class RegressionLoss(NamedTuple):
    """A loss ℓ(p, y) with its derivatives in p and the range of its curvature."""

    value: Callable[[Tensor, Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]  # ℓ′ in p
    curvature: Callable[[Tensor, Tensor], Tensor]  # ℓ″ in p
    least_curvature: float
    largest_curvature: float


def _compute_logistic_curvature(predictions: Tensor, labels: Tensor) -> Tensor:
    probability = torch.sigmoid(labels * predictions)
    return probability * (1 - probability)


SQUARES = RegressionLoss(
    value=lambda predictions, labels: 0.5 * (predictions - labels).square(),
    slope=lambda predictions, labels: predictions - labels,
    curvature=lambda predictions, labels: torch.ones_like(predictions + labels),
    least_curvature=1.0,
    largest_curvature=1.0,
)
LOGISTIC = RegressionLoss(
    value=lambda predictions, labels: F.softplus(-labels * predictions),
    slope=lambda predictions, labels: -labels * torch.sigmoid(-labels * predictions),
    curvature=_compute_logistic_curvature,
    least_curvature=0.0,
    largest_curvature=0.25,
)
