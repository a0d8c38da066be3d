"""Time what a local step may have beside its gradient: augmentation, structured batches and local optimisers.

    python benchmarks/features.py

The contestants take turns in one process with one thread, each for the local steps of one client; a result is the
median of the ratios. Times are CPU times, so that other processes disturb them less.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pages import RESULTS, describe_machine, write_section
from torch import Tensor, nn
from workloads import WORKLOADS

from fedcm.algorithms import FedAvg
from fedcm.core.algorithm import Round
from fedcm.core.local.optimizers import SGD, Adam, AdamW, LocalOptimizer
from fedcm.core.problem import Problem
from fedcm.data.augmentation import make_augment
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.client_runner import ClientRunner
from fedcm.models import build_model
from fedcm.system.hardware import use_one_thread
from fedcm.system.memory import keep_freed_memory

TURNS = 60
CHANGES = {"crop": ["crop"], "flip": ["flip"], "crop + flip": ["crop", "flip"], "cutout": ["cutout"]}
OPTIMIZERS = {
    "SGD with momentum": SGD(momentum=0.9),
    "SGD with Nesterov's momentum": SGD(momentum=0.9, nesterov=True),
    "Adam": Adam(),
    "AdamW": AdamW(),
}
SECTION = """## Augmentation, structured batches and local optimisers

`python benchmarks/features.py`: a client of FedAvg with LeNet, {steps} steps with batches of {batch} images of
3 × 32 × 32, against the same steps with plain batches and plain SGD; the median of the ratios of {turns} turns, with
their quartiles. Augmentation includes the seeds of the steps' generators. Target for crop + flip: at most 1.10.
{machine}

| steps with | time / plain | quartiles |
|---|---|---|
"""


class Named(nn.Module):
    """A model whose features are given as `image`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)


def make_round(
    problem: Problem, data: Examples, changes: list[Any] | None = None, optimizer: LocalOptimizer | None = None
) -> Callable[[], object]:
    """Return a function that runs a client."""
    work, algorithm = WORKLOADS["lenet"], FedAvg()
    runner = ClientRunner(
        algorithm,
        problem,
        ArrayData(Dataset("made", data, None, 10), [np.arange(data.size)]),
        LocalWork(work.batch, work.epochs),
        seed=0,
        augment=None if changes is None else make_augment(changes),
        optimizer=optimizer,
    )
    round = Round(3, 1e-9, 1.0, 1, 1, math.nan)
    sent = algorithm.broadcast(algorithm.init_server(problem.initial_params))
    return lambda: runner.run_client(0, sent, runner.initial_state, round)


def main() -> None:
    keep_freed_memory()  # as `fedcm run` does
    work = WORKLOADS["lenet"]
    images = torch.randn(work.examples, *work.shape).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (work.examples,))
    problem = Problem(build_model(work.model, work.shape, 10, {}, 0))
    named = Problem(Named(build_model(work.model, work.shape, 10, {}, 0)))
    steps = {"plain": make_round(problem, Examples(images, labels))}
    steps |= {name: make_round(problem, Examples(images, labels), changes) for name, changes in CHANGES.items()}
    steps["features in a tuple"] = make_round(problem, Examples((images,), labels))
    steps["features in a dict"] = make_round(named, Examples({"image": images}, labels))
    steps |= {name: make_round(problem, Examples(images, labels), None, own) for name, own in OPTIMIZERS.items()}
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
    steps_per_turn = work.epochs * work.examples // work.batch
    section = SECTION.format(steps=steps_per_turn, batch=work.batch, turns=TURNS, machine=describe_machine())
    write_section("RESULTS.md", RESULTS, section + "\n".join(lines))


if __name__ == "__main__":
    main()
