"""Residual networks with group norm instead of batch norm, because averaging breaks batch norm's running statistics.

`resnet18` has a 3×3 stem, which fits 32×32 images. `resnet18-imagenet-stem` keeps the 7×7 stride-2 stem and max-pool
for 224×224 images; on 32×32 images it needs a fifteenth of the arithmetic, but loses detail. The literature calls both
ResNet-18.

He, Zhang, Ren & Sun, "Deep Residual Learning for Image Recognition", CVPR 2016; Wu & He, "Group Normalization", 2018.
"""

from collections.abc import Sequence
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from fedcm.errors import UserError
from fedcm.models.image_input import check_image_shape
from fedcm.models.small_maps import SmallMapConv2d


@final
class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    def __init__(self, channels: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = SmallMapConv2d(channels, width, 3, stride, padding=1)
        self.norm1 = nn.GroupNorm(groups, width)
        self.conv2 = SmallMapConv2d(width, width, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(SmallMapConv2d(channels, width, 1, stride), nn.GroupNorm(groups, width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet8(input_shape: tuple[int, ...], classes: int, width: int = 16, groups: int = 2) -> nn.Module:
    """Three stages of one block each, 16-32-64 channels by default."""
    stem = _build_small_stem(input_shape, width, groups, min_size=8)
    return _build_resnet(stem, classes, width, (1, 1, 1), groups)


def resnet18(input_shape: tuple[int, ...], classes: int, width: int = 64, groups: int = 2) -> nn.Module:
    """Four stages of two blocks each, 64-128-256-512 channels by default."""
    stem = _build_small_stem(input_shape, width, groups, min_size=8)
    return _build_resnet(stem, classes, width, (2, 2, 2, 2), groups)


def resnet18_imagenet_stem(input_shape: tuple[int, ...], classes: int, width: int = 64, groups: int = 2) -> nn.Module:
    """resnet18 with the 7×7 stem of stride 2 and the max-pool for large images."""
    channels, *_ = check_image_shape(input_shape, min_size=32)
    _check_groups(width, groups)
    stem = nn.Sequential(
        nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
        nn.GroupNorm(groups, width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
    return _build_resnet(stem, classes, width, (2, 2, 2, 2), groups)


def _build_small_stem(input_shape: tuple[int, ...], width: int, groups: int, min_size: int) -> nn.Module:
    channels, *_ = check_image_shape(input_shape, min_size)
    _check_groups(width, groups)
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(groups, width), nn.ReLU())


def _build_resnet(stem: nn.Module, classes: int, width: int, blocks: Sequence[int], groups: int) -> nn.Module:
    layers, channels = [stem], width
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers.append(ResidualBlock(channels, width << stage, stride, groups))
            channels = width << stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _check_groups(width: int, groups: int) -> None:
    if groups < 1 or width % groups:
        raise UserError(f"width must be a multiple of groups, got width {width} and groups {groups}")
