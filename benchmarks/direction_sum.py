"""Time the summation of the directions of a client's local steps.

    python benchmarks/direction_sum.py

A step is y ← y − η·v, or d ← d + v, y ← x − η·d. Both take turns with the same gradient of the same minibatch, in one
process with one thread; the result is the median of the ratios.
"""

import statistics
import time
from collections.abc import Callable

import torch
from pages import RESULTS, describe_machine, write_section
from workloads import WORKLOADS

from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import build_model
from fedcm.system.hardware import use_one_thread

PAIRS = {"lenet": 400, "cnn": 100, "resnet8": 60, "linear": 2000}
SECTION = """## Adding up the directions

`python benchmarks/direction_sum.py`: a local step that adds its direction to a sum and computes the parameters from it,
against a step on the parameters alone; the median of the ratios of {pairs} pairs of steps (gradient included), with
their quartiles. {machine}

| model | parameters | with the sum / without | quartiles |
|---|---|---|---|
"""


def compare_steps(name: str) -> str:
    """Return a row of the table."""
    work = WORKLOADS[name]
    problem = Problem(build_model(work.model, work.shape, 10, {}, 0))
    features = torch.randn(work.batch, *work.shape)
    if len(work.shape) == 3:
        features = features.contiguous(memory_format=torch.channels_last)
    gradient = problem.gradient(Examples(features, torch.randint(10, (work.batch,))))
    start, params, total = problem.initial_params, problem.initial_params, torch.zeros(problem.size)

    def step_plain() -> None:
        params.sub_(gradient(params), alpha=1e-9)

    def step_summed() -> None:
        total.add_(gradient(params))
        torch.sub(start, total, alpha=1e-9, out=params)

    steps: list[Callable[[], None]] = [step_plain, step_summed]
    times: dict[Callable[[], None], list[float]] = {step_plain: [], step_summed: []}
    with torch.no_grad(), use_one_thread():
        for k in range(PAIRS[name] + 1):
            for step in steps[:: 1 if k % 2 else -1]:
                began = time.perf_counter()
                step()
                times[step].append(time.perf_counter() - began)
    ratios = [b / a for a, b in zip(times[step_plain][1:], times[step_summed][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"| {name} | {problem.size:,} | {middle:.3f} | {low:.3f}–{high:.3f} |"


def main() -> None:
    lines = []
    for name in WORKLOADS:
        lines.append(compare_steps(name))
        print(lines[-1], flush=True)
    pairs = ", ".join(f"{count} ({name})" for name, count in PAIRS.items())
    write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=describe_machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
