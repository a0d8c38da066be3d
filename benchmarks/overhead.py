"""Time FedCM against FedAvg: the same round of both in turn, in one process with one thread.

    python benchmarks/overhead.py            all models, written to benchmarks/RESULTS.md
    python benchmarks/overhead.py lenet      one model, only printed

A round has one client (or stacks, if the engine stacks), so that the two are close together in time and noise affects
both equally. The order changes from round to round; the result is the median of the ratios.
"""

import argparse
import tempfile
from pathlib import Path

from bare_loop import write_experiment
from pages import RESULTS, describe_machine, write_section
from turns import format_pairs, time_in_turn
from workloads import WORKLOADS

from fedcm.config.experiment import load_experiment_file
from fedcm.system.memory import keep_freed_memory

ROUNDS = {"lenet": 401, "cnn": 121, "resnet8": 61, "linear": 301}  # the first is not counted
TARGETS = {"lenet": 1.05, "cnn": 1.02}
SECTION = """## FedCM's overhead

`python benchmarks/overhead.py`: the same round of FedAvg and FedCM in turn, in one process; the median of the ratios of
{pairs} pairs, with their quartiles. A round has one client, which
overstates the server's part (softmax regression: two stacks of 50). {machine}

| model | FedCM / FedAvg (target) | quartiles | FedAvg, s per round | FedCM, s |
|---|---|---|---|---|
"""


def compare_algorithms(name: str, rounds: int) -> str:
    """Return a row of the table."""
    cohort_size = WORKLOADS[name].cohort_size if WORKLOADS[name].stack > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        experiments = {}
        for algorithm in ("fedavg", "fedcm"):
            path = write_experiment(name, algorithm, rounds, Path(folder))
            experiments[algorithm] = load_experiment_file(path, [f"participation.clients={cohort_size}"])
        ratios = time_in_turn(experiments, rounds)
    target = f" (≤ {TARGETS[name]:.2f})" if name in TARGETS else ""
    return f"| {name} | {ratios.format(3, target)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(WORKLOADS))
    models = parser.parse_args().models
    keep_freed_memory()  # as `fedcm run` does
    lines = []
    for name in models or WORKLOADS:
        lines.append(compare_algorithms(name, ROUNDS[name]))
        print(lines[-1], flush=True)
    if not models:
        pairs = format_pairs(ROUNDS)
        write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=describe_machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
