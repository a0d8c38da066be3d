"""Time the augmentation of a batch, and batches that are structures.

    python benchmarks/augmentation.py

The contestants take turns in one process with one thread; a result is the median of the ratios. Times are CPU times,
so that other processes disturb them less.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from pages import RESULTS, describe_machine, write_section
from torch import Tensor, nn
from workloads import WORKLOADS

from fedcm.core.problem import Problem
from fedcm.data.augmentation import make_augment
from fedcm.data.dataset import Examples
from fedcm.models import build_model
from fedcm.rng import Purpose, make_torch_seed
from fedcm.system.hardware import use_one_thread

TURNS = 300
CHANGES = {"crop": ["crop"], "flip": ["flip"], "crop + flip": ["crop", "flip"], "cutout": ["cutout"]}
SECTION = """## Augmentation and structured batches

`python benchmarks/augmentation.py`: a local step of LeNet on {batch} images of 3 × 32 × 32 (the batch is selected and
collated, its gradient is computed), against the same step of plain batches; the median of the ratios of {turns} turns,
with their quartiles. Augmentation includes the seed of the step's generator. {machine}

| step with | time / plain | quartiles |
|---|---|---|
"""


class Named(nn.Module):
    """A model whose features are given as `image`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)


def make_step(problem: Problem, data: Examples, changes: list[Any] | None = None) -> Callable[[], None]:
    """Return a local step as a client runs it: select, collate, augment, gradient."""
    params, index = problem.initial_params, torch.randperm(data.size)[: WORKLOADS["lenet"].batch]
    augment, generator = None if changes is None else make_augment(changes), torch.Generator()

    def step() -> None:
        batch = problem.collate(data.select(index))
        if augment is not None:
            batch = augment(batch, generator.manual_seed(make_torch_seed(0, Purpose.AUGMENTATION, 3, 5, 7)))
        params.sub_(problem.gradient(batch)(params), alpha=1e-9)

    return step


def main() -> None:
    work = WORKLOADS["lenet"]
    images = torch.randn(work.examples, *work.shape).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (work.examples,))
    problem = Problem(build_model(work.model, work.shape, 10, {}, 0))
    named = Problem(Named(build_model(work.model, work.shape, 10, {}, 0)))
    steps = {"plain": make_step(problem, Examples(images, labels))}
    steps |= {name: make_step(problem, Examples(images, labels), changes) for name, changes in CHANGES.items()}
    steps["features in a tuple"] = make_step(problem, Examples((images,), labels))
    steps["features in a dict"] = make_step(named, Examples({"image": images}, labels))
    times: dict[str, list[float]] = {name: [] for name in steps}
    with torch.no_grad(), use_one_thread():
        for turn in range(TURNS + 1):
            for name in list(steps)[:: 1 if turn % 2 else -1]:
                began = time.process_time()
                steps[name]()
                times[name].append(time.process_time() - began)
    lines = []
    for name in list(steps)[1:]:
        ratios = [own / plain for own, plain in zip(times[name][1:], times["plain"][1:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        lines.append(f"| {name} | {middle:.3f} | {low:.3f}–{high:.3f} |")
        print(lines[-1], flush=True)
    section = SECTION.format(batch=work.batch, turns=TURNS, machine=describe_machine())
    write_section("RESULTS.md", RESULTS, section + "\n".join(lines))


if __name__ == "__main__":
    main()
