"""The bundled models' forward passes, written from their papers with torch.nn.functional alone.

Each takes the parameters in their documented order (docs/models.md) and nothing of the library: LeCun et al. 1998
(LeNet-5, with ReLU and max-pooling), McMahan et al. 2017 (2NN), Acar et al. 2021 (CNN), He et al. 2016 (residual
networks, option B shortcuts), Wu & He 2018 (group norm).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Forward = Callable[..., Tensor]


def linear(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    weight, bias = parameters
    return _dense(iter([weight, bias]), x.reshape(len(x), -1))


def mlp(parameters: Iterable[Tensor], x: Tensor, hidden: Sequence[int] = (200, 200)) -> Tensor:
    left, x = iter(parameters), x.reshape(len(x), -1)
    for units in hidden:
        x = _positive(_dense(left, x))
        assert x.shape[1] == units
    return _last(left, x)


def lenet(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    return _two_convolutions(parameters, x, (6, 16), (120, 84))


def cnn(parameters: Iterable[Tensor], x: Tensor) -> Tensor:
    return _two_convolutions(parameters, x, (64, 64), (384, 192))


def resnet8(parameters: Iterable[Tensor], x: Tensor, width: int = 16, groups: int = 2) -> Tensor:
    left = iter(parameters)
    return _stages(left, _small_stem(left, x, width, groups), width, (1, 1, 1), groups)


def resnet18(parameters: Iterable[Tensor], x: Tensor, width: int = 64, groups: int = 2) -> Tensor:
    left = iter(parameters)
    return _stages(left, _small_stem(left, x, width, groups), width, (2, 2, 2, 2), groups)


def resnet18_imagenet_stem(parameters: Iterable[Tensor], x: Tensor, width: int = 64, groups: int = 2) -> Tensor:
    left = iter(parameters)
    x = F.conv2d(x, _shaped(next(left), (width, x.shape[1], 7, 7)), stride=2, padding=3)
    x = F.max_pool2d(_positive(_group_norm(left, x, groups)), kernel_size=3, stride=2, padding=1)
    return _stages(left, x, width, (2, 2, 2, 2), groups)


ARCHITECTURES: dict[str, Forward] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "resnet18-imagenet-stem": resnet18_imagenet_stem,
}


def _two_convolutions(
    parameters: Iterable[Tensor], x: Tensor, channels: tuple[int, int], hidden: tuple[int, int]
) -> Tensor:
    left = iter(parameters)
    for wide in channels:
        weight, bias = _shaped(next(left), (wide, x.shape[1], 5, 5)), next(left)
        x = F.max_pool2d(_positive(F.conv2d(x, weight, bias)), 2)  # the papers' order: the maximum comes last
    x = x.reshape(len(x), -1)
    for units in hidden:
        x = _positive(_dense(left, x))
        assert x.shape[1] == units
    return _last(left, x)


def _small_stem(left: Iterator[Tensor], x: Tensor, width: int, groups: int) -> Tensor:
    x = F.conv2d(x, _shaped(next(left), (width, x.shape[1], 3, 3)), padding=1)
    return _positive(_group_norm(left, x, groups))


def _stages(left: Iterator[Tensor], x: Tensor, width: int, blocks: Sequence[int], groups: int) -> Tensor:
    """Every stage but the first doubles the channels and halves height and width in its first block."""
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            x = _block(left, x, width * 2**stage, stride, groups)
    return _last(left, x.mean((2, 3)))


def _block(left: Iterator[Tensor], x: Tensor, wide: int, stride: int, groups: int) -> Tensor:
    y = F.conv2d(x, _shaped(next(left), (wide, x.shape[1], 3, 3)), stride=stride, padding=1)
    y = _positive(_group_norm(left, y, groups))
    y = F.conv2d(y, _shaped(next(left), (wide, wide, 3, 3)), padding=1)
    y = _group_norm(left, y, groups)
    if x.shape != y.shape:  # option B: a projection where the shapes differ, the input itself elsewhere
        x = _group_norm(left, F.conv2d(x, _shaped(next(left), (wide, x.shape[1], 1, 1)), stride=stride), groups)
    return _positive(y + x)


def _group_norm(left: Iterator[Tensor], x: Tensor, groups: int) -> Tensor:
    """(x − mean) / √(variance + 10⁻⁵) over each image's groups of channels, then a scale and a shift a channel."""
    scale, shift = next(left), next(left)
    apart = x.reshape(len(x), groups, -1)
    mean, variance = apart.mean(2, keepdim=True), apart.var(2, keepdim=True, unbiased=False)
    return ((apart - mean) / (variance + 1e-5).sqrt()).reshape(x.shape) * scale[:, None, None] + shift[:, None, None]


def _dense(left: Iterator[Tensor], x: Tensor) -> Tensor:
    return x @ next(left).T + next(left)


def _positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0)


def _last(left: Iterator[Tensor], x: Tensor) -> Tensor:
    outputs = _dense(left, x)
    assert next(left, None) is None, "every parameter must be used"
    return outputs


def _shaped(weight: Tensor, shape: tuple[int, ...]) -> Tensor:
    assert tuple(weight.shape) == shape, f"expected weights of {shape}, got {tuple(weight.shape)}"
    return weight
