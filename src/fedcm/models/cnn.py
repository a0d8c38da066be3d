"""Two 5×5 convolutions with pooling, then dense layers: LeNet-5, and the wider network of the federated literature.

ReLU comes after the max-pool, not before: the same function of the input, on a quarter of the numbers.
"""

from collections.abc import Sequence

from torch import nn

from fedcm.models.images import image_shape


def lenet(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """6 and 16 channels, 120 and 84 units (LeCun et al., 1998, with ReLU and max-pooling)."""
    return two_convolutions(input_shape, classes, channels=(6, 16), hidden=(120, 84))


def cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """64 and 64 channels, 384 and 192 units (McMahan et al., 2017; Acar et al., 2021)."""
    return two_convolutions(input_shape, classes, channels=(64, 64), hidden=(384, 192))


def two_convolutions(
    input_shape: tuple[int, ...], classes: int, channels: tuple[int, int], hidden: Sequence[int]
) -> nn.Module:
    depth, height, width = image_shape(input_shape, least=16)
    rows, columns = (((size - 4) // 2 - 4) // 2 for size in (height, width))
    layers: list[nn.Module] = [
        *(nn.Conv2d(depth, channels[0], 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(channels[0], channels[1], 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Flatten(),
    ]
    units = channels[1] * rows * columns
    for wide in hidden:
        layers += [nn.Linear(units, wide), nn.ReLU()]
        units = wide
    return nn.Sequential(*layers, nn.Linear(units, classes))
