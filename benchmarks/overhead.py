"""Time FedCM against FedAvg: the same round of both in turn, in one process with one thread.

    python benchmarks/overhead.py            all models, written to benchmarks/RESULTS.md
    python benchmarks/overhead.py lenet      one model, only printed

A round has one client (or stacks, if the engine stacks), so that the two are close together in time and noise affects
both equally. The order changes from round to round; the result is the median of the ratios.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from bare_loop import write_experiment
from pages import RESULTS, describe_machine, write_section
from workloads import WORKLOADS

from fedcm.config.experiment import load_experiment_file
from fedcm.core.round_loop import run_rounds
from fedcm.executors.local import LocalExecutor
from fedcm.runs.build import build
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
    plans, times = {}, {"fedavg": [], "fedcm": []}
    with tempfile.TemporaryDirectory() as folder:
        for algorithm in times:
            cohort_size = WORKLOADS[name].cohort_size if WORKLOADS[name].stack > 1 else 1
            path = write_experiment(name, algorithm, rounds, Path(folder))
            setup = build(load_experiment_file(path, [f"participation.clients={cohort_size}"]))
            server = setup.algorithm.init_server(setup.problem.initial_params)
            plans[algorithm] = run_rounds(setup.algorithm, LocalExecutor(setup.runner), setup.plan, server)
        for k in range(rounds):
            for algorithm in sorted(plans, reverse=bool(k % 2)):
                times[algorithm].append(next(plans[algorithm]).metrics.seconds)
    ratios = [fedcm / fedavg for fedavg, fedcm in zip(times["fedavg"][1:], times["fedcm"][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    target = f" (≤ {TARGETS[name]:.2f})" if name in TARGETS else ""
    seconds = " | ".join(f"{statistics.median(times[algorithm][1:]):.3f}" for algorithm in times)
    return f"| {name} | {middle:.3f}{target} | {low:.3f}–{high:.3f} | {seconds} |"


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
        pairs = ", ".join(f"{rounds - 1} ({name})" for name, rounds in ROUNDS.items())
        write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=describe_machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
