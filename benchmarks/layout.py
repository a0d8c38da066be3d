"""Milliseconds a step of 50 images with weights in the usual order against channels_last, one thread, alternating.

python benchmarks/layout.py
"""

import time

import torch
import torch.nn.functional as F
from torch import nn

from fedcm.models import build_model

STEPS, REPEATS = 30, 4


def milliseconds(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    parameters = list(model.parameters())

    def step() -> None:
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=1e-4)

    for _ in range(3):
        step()
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - started) / STEPS * 1e3


def main() -> None:
    torch.set_num_threads(1)
    x = torch.randn(50, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (50,))
    for name in ("lenet", "cnn"):
        usual = build_model(name, (3, 32, 32), 10, {}, 0)
        other = build_model(name, (3, 32, 32), 10, {}, 0)
        other.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        for _ in range(REPEATS):
            times = milliseconds(usual, x, y), milliseconds(other, x, y)
            print(f"{name:6} usual {times[0]:6.1f} ms   channels_last {times[1]:6.1f} ms")


if __name__ == "__main__":
    main()
