"""Time a round in bf16 against the same round in float32, and compare their gradients.

    python benchmarks/precision.py            all models, written to benchmarks/RESULTS.md
    python benchmarks/precision.py lenet      one model, only printed

The two take turns in one process with one thread; a round has one client. The result is the median of the ratios.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from bare_loop import write_experiment
from pages import RESULTS, describe_machine, write_section

from fedcm.config.experiment import load_experiment_file
from fedcm.core.problem import Problem
from fedcm.core.round_loop import run_rounds
from fedcm.data.dataset import Examples
from fedcm.executors.local import LocalExecutor
from fedcm.models import build_model
from fedcm.runs.build import build
from fedcm.system.memory import keep_freed_memory

# the first round is not counted
ROUNDS = {
    "lenet": 101,
    "lenet-wide": 61,
    "cnn": 31,
    "resnet8": 31,
    "resnet18-imagenet-stem": 13,
}
SECTION = """## bfloat16

`python benchmarks/precision.py`: the same round of FedCM with `engine.precision` bf16 and float32 in turn, in one
process with one thread; the median of the ratios of {pairs} pairs, with their quartiles. A round has one
client: 5 epochs of 2 batches of 50 images of 3 × 32 × 32. "Gradient" is the relative error of one batch's gradient.
{machine}

| model | bf16 / float32 | quartiles | float32, s per round | bf16, s | gradient |
|---|---|---|---|---|---|
"""


def measure_gradient_error(name: str) -> float:
    """Return ‖g_bf16 − g‖ / ‖g‖ for a batch of 50 at the initial parameters."""
    generator = torch.Generator().manual_seed(0)
    batch = Examples(torch.randn(50, 3, 32, 32, generator=generator), torch.randint(10, (50,), generator=generator))
    exact, rounded = (Problem(build_model(name, (3, 32, 32), 10, {}, 0), autocast=half) for half in (False, True))
    one, two = (problem.gradient(batch)(exact.initial_params) for problem in (exact, rounded))
    return float((two - one).norm() / one.norm())


def compare_precisions(name: str, rounds: int) -> str:
    """Return a row of the table."""
    plans, times = {}, {"float32": [], "bf16": []}
    with tempfile.TemporaryDirectory() as folder:
        path = write_experiment("lenet", "fedcm", rounds, Path(folder))
        fixed = [f"model.name={name}", "participation.clients=1", "engine.layout=channels_last", "engine.compile=off"]
        for precision in times:
            setup = build(load_experiment_file(path, [*fixed, f"engine.precision={precision}"]))
            server = setup.algorithm.init_server(setup.problem.initial_params)
            plans[precision] = run_rounds(setup.algorithm, LocalExecutor(setup.runner), setup.plan, server)
        for k in range(rounds):
            for precision in sorted(plans, reverse=bool(k % 2)):
                times[precision].append(next(plans[precision]).metrics.seconds)
    ratios = [half / full for half, full in zip(times["bf16"][1:], times["float32"][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    seconds = " | ".join(f"{statistics.median(times[precision][1:]):.3f}" for precision in times)
    return f"| {name} | {middle:.2f} | {low:.2f}–{high:.2f} | {seconds} | {measure_gradient_error(name):.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(ROUNDS))
    models = parser.parse_args().models
    keep_freed_memory()  # as `fedcm run` does
    lines = []
    for name in models or ROUNDS:
        lines.append(compare_precisions(name, ROUNDS[name]))
        print(lines[-1], flush=True)
    if not models:
        pairs = ", ".join(f"{rounds - 1} ({name})" for name, rounds in ROUNDS.items())
        write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=describe_machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
