"""The losses of the two regressions, as functions of a prediction p = ⟨X, x⟩ and its answer y.

squares    ℓ = (p − y)²/2               ℓ″ = 1
logistic   ℓ = log(1 + exp(−y·p))       ℓ″ in (0, ¼], largest at p = 0;  y is +1 or −1
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Loss(NamedTuple):
    value: Callable[[Tensor, Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]  # ℓ′ in p
    curvature: Callable[[Tensor, Tensor], Tensor]  # ℓ″ in p
    least_curvature: float
    largest_curvature: float


def _logistic_curvature(predictions: Tensor, answers: Tensor) -> Tensor:
    chance = torch.sigmoid(answers * predictions)
    return chance * (1 - chance)


SQUARES = Loss(
    value=lambda predictions, answers: 0.5 * (predictions - answers).square(),
    slope=lambda predictions, answers: predictions - answers,
    curvature=lambda predictions, answers: torch.ones_like(predictions + answers),
    least_curvature=1.0,
    largest_curvature=1.0,
)
LOGISTIC = Loss(
    value=lambda predictions, answers: F.softplus(-answers * predictions),
    slope=lambda predictions, answers: -answers * torch.sigmoid(-answers * predictions),
    curvature=_logistic_curvature,
    least_curvature=0.0,
    largest_curvature=0.25,
)
