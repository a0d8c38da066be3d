"""The models in plain torch, as they are usually written; the bare loop and the peers train them."""

import torch
import torch.nn.functional as F
from torch import nn


class PlainCNN(nn.Module):
    """Two convolutions as they are usually written, with ReLU before the pool."""

    def __init__(self, channels: tuple[int, int], hidden: tuple[int, int]) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, channels[0], 5), nn.Conv2d(*channels, 5)
        self.dense = nn.ModuleList([nn.Linear(channels[1] * 25, hidden[0]), nn.Linear(*hidden)])
        self.last = nn.Linear(hidden[1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        for layer in self.dense:
            x = F.relu(layer(x))
        return self.last(x)


def build_lenet() -> nn.Module:
    """Build LeNet as a user would bring it, for `model.name = "plain_models:build_lenet"`."""
    return build_plain_model("lenet")


def build_cnn() -> nn.Module:
    """Build the CNN as a user would bring it."""
    return build_plain_model("cnn")


def build_linear() -> nn.Module:
    """Build softmax regression as a user would bring it."""
    return build_plain_model("linear")


def build_plain_model(name: str) -> nn.Module:
    """Build lenet, cnn or linear."""
    match name:
        case "lenet":
            return PlainCNN((6, 16), (120, 84))
        case "cnn":
            return PlainCNN((64, 64), (384, 192))
        case "linear":
            return nn.Linear(784, 10)
        case _:
            raise ValueError(f"the model must be lenet, cnn or linear, got {name!r}")
