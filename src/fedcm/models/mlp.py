"""A multi-layer perceptron with ReLU."""

import math
from collections.abc import Sequence

from torch import nn

from fedcm.errors import UserError
from fedcm.system.field_checks import is_count


def mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (200, 200)) -> nn.Module:
    """A multi-layer perceptron with ReLU; `hidden` gives the units of each hidden layer."""
    if isinstance(hidden, str) or not all(is_count(units, 1) for units in hidden):
        raise UserError(f"model.hidden must be a list of whole numbers, each at least 1, got {hidden!r}")
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(input_shape)
    for units in hidden:
        layers += [nn.Linear(inputs, units), nn.ReLU()]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, classes))
