"""Softmax regression: one dense layer."""

import math

from torch import nn


def linear(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression: one dense layer on the flattened input."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))
