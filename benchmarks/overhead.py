"""FedCM against FedAvg in this engine: the same round of both in turn, in one process of one thread.

    python benchmarks/overhead.py            all models, into benchmarks/RESULTS.md
    python benchmarks/overhead.py lenet      one model, printed only

Rounds of one client (of stacks, where the engine stacks), so that the two lie close together in time and noise
disturbs them alike; who comes first changes from round to round, and the median of the ratios counts.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from bare_loop import experiment
from pages import RESULTS, machine, write_section
from works import WORKS

from fedcm.config.experiment import load_experiment
from fedcm.core.round_loop import run_rounds
from fedcm.executors.local import LocalExecutor
from fedcm.runs.assembly import assemble
from fedcm.system.memory import keep_freed_memory

ROUNDS = {"lenet": 401, "cnn": 121, "resnet8": 61, "linear": 301}  # the first does not count
TARGETS = {"lenet": 1.05, "cnn": 1.02}
SECTION = """## FedCM's overhead

`python benchmarks/overhead.py`: the same round of FedAvg and FedCM in turn, in one process; the median of the ratios of
{pairs} pairs, with their quartiles. A round of one client, which gives
the server's part more weight than it has (softmax regression: two stacks of 50). {machine}

| model | FedCM / FedAvg (target) | quartiles | FedAvg, s a round | FedCM, s |
|---|---|---|---|---|
"""


def side_by_side(name: str, rounds: int) -> str:
    """A row of the table."""
    plans, times = {}, {"fedavg": [], "fedcm": []}
    with tempfile.TemporaryDirectory() as folder:
        for algorithm in times:
            cohort = WORKS[name].cohort if WORKS[name].stack > 1 else 1
            path = experiment(name, algorithm, rounds, Path(folder))
            assembly = assemble(load_experiment(path, [f"participation.clients={cohort}"]))
            server = assembly.algorithm.init_server(assembly.problem.initial())
            plans[algorithm] = run_rounds(assembly.algorithm, LocalExecutor(assembly.runner), assembly.plan, server)
        for k in range(rounds):
            for algorithm in sorted(plans, reverse=bool(k % 2)):
                times[algorithm].append(next(plans[algorithm]).metrics["seconds"])
    ratios = [fedcm / fedavg for fedavg, fedcm in zip(times["fedavg"][1:], times["fedcm"][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    target = f" (≤ {TARGETS[name]:.2f})" if name in TARGETS else ""
    seconds = " | ".join(f"{statistics.median(times[algorithm][1:]):.3f}" for algorithm in times)
    return f"| {name} | {middle:.3f}{target} | {low:.3f}–{high:.3f} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(WORKS))
    asked = parser.parse_args().models
    keep_freed_memory()  # as `fedcm run` does
    lines = []
    for name in asked or WORKS:
        lines.append(side_by_side(name, ROUNDS[name]))
        print(lines[-1], flush=True)
    if not asked:
        pairs = ", ".join(f"{rounds - 1} ({name})" for name, rounds in ROUNDS.items())
        write_section("RESULTS.md", RESULTS, SECTION.format(pairs=pairs, machine=machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
