"""Clip reports and round them to a grid of integers, so that the norm of each is bounded exactly.

The fields of a report are divided by their thresholds and joined to one vector u. A report is scaled down until
‖u‖ ≤ 1, and u is written as integers: steps of 2^−bits, rounded towards 0. That cannot make a norm larger, and the norm
of the integers is checked with integers. So one report changes the sum by at most 2^bits steps in the Euclidean norm,
whatever a client reports.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedcm.core.privacy.discrete_gaussian import GREATEST_SIGMA

MOST_BITS = 20
_LARGEST = 1e150  # in thresholds: a quotient beyond it may be infinite, and its norm would not be a number
_SHRINK = 1 - 2.0**-20  # of a report whose integers are too long, because floats round


class ClippedStack(NamedTuple):
    """The clipped reports of a stack of clients."""

    fields: list[Tensor]  # int64, (C, P) each
    is_below: Tensor  # (C,): whether the report was within the thresholds before


def choose_grid_bits(noise_multiplier: float) -> int:
    """Return the bits of the grid: 20, or fewer if the noise would be too large for the exact sampler."""
    return min(MOST_BITS, math.floor(math.log2(GREATEST_SIGMA / noise_multiplier)))


def clip_to_grid(fields: Sequence[Tensor], thresholds: Sequence[float], bits: int) -> ClippedStack:
    """Clip finite reports.

    Args:
        fields: One row per client, (C, P) each.
        thresholds: One per field.
        bits: Of the grid.
    """
    parts = [
        (field.to(torch.float64) / threshold).clamp_(-_LARGEST, _LARGEST)
        for field, threshold in zip(fields, thresholds, strict=True)
    ]
    peaks = torch.stack([part.abs().amax(1) for part in parts]).amax(0).clamp(min=1.0)  # so that no square overflows
    squares = sum((part / peaks[:, None]).square().sum(1) for part in parts)
    norms = torch.as_tensor(squares).sqrt() * peaks
    factors = 1 / norms.clamp(min=1.0)
    while True:
        units = [(part * (factors * 2.0**bits)[:, None]).trunc_().to(torch.int64) for part in parts]
        lengths = torch.stack([part.square().sum(1) for part in units]).sum(0)
        is_long = lengths > 4**bits
        if not is_long.any():
            return ClippedStack(units, norms <= 1)
        factors = torch.where(is_long, factors * _SHRINK, factors)
