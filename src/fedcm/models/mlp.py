"""A multi-layer perceptron with ReLU."""

import math
from collections.abc import Sequence

from torch import nn


def mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (200, 200)) -> nn.Module:
    """A multi-layer perceptron with ReLU; `hidden` gives the units of each hidden layer."""
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(input_shape)
    for units in hidden:
        layers += [nn.Linear(inputs, units), nn.ReLU()]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, classes))
