"""Time a step of 50 images on one thread: images and weights in the usual order or channels_last, and compiled.

    python benchmarks/layout.py              LeNet, CNN, ResNet-8
    python benchmarks/layout.py resnet8      one of them

The variants take turns; each column is the shortest time in milliseconds.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from fedcm.models import build_model

STEPS, TURNS = 10, 5
VARIANTS = ("images and weights usual", "images channels_last", "both channels_last", "images channels_last, compiled")


def build_step(name: str, variant: str) -> "Step":
    model = build_model(name, (3, 32, 32), 10, {}, 0)
    x = torch.randn(50, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    if "channels_last" in variant:
        x = x.contiguous(memory_format=torch.channels_last)
    if variant == "both channels_last":
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    run = torch.compile(model, dynamic=False) if "compiled" in variant else model
    return Step(model, run, x)


class Step:
    """One SGD step of a model on a fixed batch."""

    def __init__(self, model: nn.Module, run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
        self.parameters, self.run, self.x = list(model.parameters()), run, x
        self.y = torch.arange(50) % 10

    def __call__(self) -> None:
        gradients = torch.autograd.grad(F.cross_entropy(self.run(self.x), self.y), self.parameters)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=1e-4)

    def measure(self) -> float:
        """Return the milliseconds per step."""
        started = time.perf_counter()
        for _ in range(STEPS):
            self()
        return (time.perf_counter() - started) / STEPS * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["lenet", "cnn", "resnet8"])
    torch.set_num_threads(1)
    print(f"| model | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}")
    for name in parser.parse_args().models:
        steps = [build_step(name, variant) for variant in VARIANTS]
        for step in steps:
            step()  # compile first
        turns = [[step.measure() for step in steps] for _ in range(TURNS)]
        print(f"| {name} | {' | '.join(f'{min(times):.1f}' for times in zip(*turns, strict=True))} |", flush=True)


if __name__ == "__main__":
    main()
