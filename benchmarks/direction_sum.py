"""What it costs to add up the directions of a client's local steps.

    python benchmarks/direction_sum.py

A step is y ← y − η·v, or d ← d + v, y ← x − η·d. Both follow the same gradient of the same minibatch, in turn, in one
process of one thread; the median of the ratios counts.
"""

import statistics
import time
from collections.abc import Callable

import torch
from pages import RESULTS, machine, write_section
from works import WORKS

from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import build_model
from fedcm.system.threads import one_thread

PAIRS = {"lenet": 400, "cnn": 100, "resnet8": 60, "linear": 2000}
SECTION = """## Adding up the directions

`python benchmarks/direction_sum.py`: a local step that adds its direction to a sum and computes the parameters from it,
against a step on the parameters alone; the median of the ratios of {pairs} pairs of steps (gradient included), with
their quartiles. {machine}

| model | parameters | with the sum / without | quartiles |
|---|---|---|---|
"""


def compare(name: str) -> str:
    """A row of the table."""
    work = WORKS[name]
    problem = Problem(build_model(work.model, work.shape, 10, {}, 0))
    features = torch.randn(work.batch, *work.shape)
    if len(work.shape) == 3:
        features = features.contiguous(memory_format=torch.channels_last)
    gradient = problem.gradient(Examples(features, torch.randint(10, (work.batch,))))
    start, params, total = problem.initial(), problem.initial(), torch.zeros(problem.size)

    def plain() -> None:
        params.sub_(gradient(params), alpha=1e-9)

    def summed() -> None:
        total.add_(gradient(params))
        torch.sub(start, total, alpha=1e-9, out=params)

    ways: list[Callable[[], None]] = [plain, summed]
    times: dict[Callable[[], None], list[float]] = {plain: [], summed: []}
    with torch.no_grad(), one_thread():
        for k in range(PAIRS[name] + 1):
            for way in ways[:: 1 if k % 2 else -1]:
                began = time.perf_counter()
                way()
                times[way].append(time.perf_counter() - began)
    ratios = [b / a for a, b in zip(times[plain][1:], times[summed][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"| {name} | {problem.size:,} | {middle:.3f} | {low:.3f}–{high:.3f} |"


def main() -> None:
    lines = []
    for name in WORKS:
        lines.append(compare(name))
        print(lines[-1], flush=True)
    pairs = ", ".join(f"{count} ({name})" for name, count in PAIRS.items())
    write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
