"""Two 5×5 convolutions with pooling, then dense layers: LeNet-5, and the wider network of the federated literature.

ReLU follows the max-pool instead of preceding it: the function is the same, computed on a quarter of the values.
"""

from collections.abc import Sequence

from torch import nn

from fedcm.models.image_input import check_image_shape


def lenet(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """6 and 16 channels, 120 and 84 units (LeCun et al., 1998, with ReLU and max-pooling)."""
    return _build_cnn(input_shape, classes, channels=(6, 16), hidden=(120, 84))


def lenet_wide(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """16 and 32 channels, 120 and 84 units: LeNet with about twice the parameters."""
    return _build_cnn(input_shape, classes, channels=(16, 32), hidden=(120, 84))


def cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """64 and 64 channels, 384 and 192 units (McMahan et al., 2017; Acar et al., 2021)."""
    return _build_cnn(input_shape, classes, channels=(64, 64), hidden=(384, 192))


def _build_cnn(
    input_shape: tuple[int, ...], classes: int, channels: tuple[int, int], hidden: Sequence[int]
) -> nn.Module:
    depth, height, width = check_image_shape(input_shape, min_size=16)
    rows, columns = (((size - 4) // 2 - 4) // 2 for size in (height, width))
    layers: list[nn.Module] = [
        *(nn.Conv2d(depth, channels[0], 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(channels[0], channels[1], 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Flatten(),
    ]
    inputs = channels[1] * rows * columns
    for units in hidden:
        layers += [nn.Linear(inputs, units), nn.ReLU()]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, classes))
