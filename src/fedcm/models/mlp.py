"""A multi-layer perceptron with ReLU."""

import math
from collections.abc import Sequence

from torch import nn


def mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (200, 200)) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for units in hidden:
        layers += [nn.Linear(width, units), nn.ReLU()]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, classes))
