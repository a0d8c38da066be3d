"""Time a round in bf16 against the same round in float32, and compare their gradients.

    python benchmarks/precision.py            all models, written to benchmarks/RESULTS.md
    python benchmarks/precision.py lenet      one model, only printed

The two take turns in one process with one thread; a round has one client. The result is the median of the ratios.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from bare_loop import write_experiment
from pages import RESULTS, describe_machine, write_section
from turns import format_pairs, time_in_turn

from fedcm.config.experiment import load_experiment_file
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import build_model
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
    fixed = [f"model.name={name}", "participation.clients=1", "engine.layout=channels_last", "engine.compile=off"]
    with tempfile.TemporaryDirectory() as folder:
        path = write_experiment("lenet", "fedcm", rounds, Path(folder))
        precisions = ("float32", "bf16")
        ratios = time_in_turn(
            {one: load_experiment_file(path, [*fixed, f"engine.precision={one}"]) for one in precisions}, rounds
        )
    return f"| {name} | {ratios.format(2)} | {measure_gradient_error(name):.1%} |"


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
        pairs = format_pairs(ROUNDS)
        write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=describe_machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
