"""Residual networks with group norm in place of batch norm, whose running statistics do not survive averaging.

`resnet18` has the 3×3 stem that fits 32×32 images; `resnet18-imagenet-stem` keeps the 7×7 stride-2 stem and max-pool of
224×224 images: a fifteenth of the arithmetic on 32×32 images, and less to see. The literature calls both ResNet-18.

He, Zhang, Ren & Sun, "Deep Residual Learning for Image Recognition", CVPR 2016; Wu & He, "Group Normalization", 2018.
"""

from collections.abc import Sequence
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from fedcm.errors import UserError
from fedcm.models.images import image_shape


@final
class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.GroupNorm(groups, width)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet8(input_shape: tuple[int, ...], classes: int, width: int = 16, groups: int = 2) -> nn.Module:
    """Three stages of one block, 16-32-64 channels by default."""
    stem = _small_stem(input_shape, width, groups, least=8)
    return _resnet(stem, classes, width, (1, 1, 1), groups)


def resnet18(input_shape: tuple[int, ...], classes: int, width: int = 64, groups: int = 2) -> nn.Module:
    """Four stages of two blocks, 64-128-256-512 channels by default."""
    stem = _small_stem(input_shape, width, groups, least=8)
    return _resnet(stem, classes, width, (2, 2, 2, 2), groups)


def resnet18_imagenet_stem(input_shape: tuple[int, ...], classes: int, width: int = 64, groups: int = 2) -> nn.Module:
    """As resnet18, with the 7×7 stride-2 stem and max-pool of large images."""
    channels, *_ = image_shape(input_shape, least=32)
    _check_groups(width, groups)
    stem = nn.Sequential(
        nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
        nn.GroupNorm(groups, width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
    return _resnet(stem, classes, width, (2, 2, 2, 2), groups)


def _small_stem(input_shape: tuple[int, ...], width: int, groups: int, least: int) -> nn.Module:
    channels, *_ = image_shape(input_shape, least)
    _check_groups(width, groups)
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(groups, width), nn.ReLU())


def _resnet(stem: nn.Module, classes: int, width: int, blocks: Sequence[int], groups: int) -> nn.Module:
    layers, channels = [stem], width
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers.append(Block(channels, width << stage, stride, groups))
            channels = width << stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _check_groups(width: int, groups: int) -> None:
    if groups < 1 or width % groups:
        raise UserError(f"width must be a multiple of groups, got width {width} and groups {groups}")
