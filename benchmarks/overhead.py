"""FedCM against FedAvg in this engine: the same round of both in turn, in one process of one thread.

    python benchmarks/overhead.py            all models, into benchmarks/RESULTS.md
    python benchmarks/overhead.py lenet      one model, printed only

Who comes first changes from round to round. What disturbs a round only ever adds to it, so the fastest quarter of each
counts.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from bare_loop import experiment
from pages import RESULTS, machine, write_section
from works import WORKS

from fedcm.assembly import assemble
from fedcm.executors.local import LocalExecutor
from fedcm.experiment import load
from fedcm.memory import keep_freed_memory
from fedcm.training import training

ROUNDS = {"lenet": 61, "cnn": 25, "resnet8": 9, "linear": 301}  # the first does not count
TARGETS = {"lenet": 1.05, "cnn": 1.02}
SECTION = """## FedCM's overhead

`python benchmarks/overhead.py`: the same round of FedAvg and FedCM in turn, in one process, {pairs} of
each. What disturbs a round only adds to it, so the mean of the fastest quarter of each counts; beside it the
quartiles of the ratios of the pairs, which tell how disturbed it was. {machine}

| model | FedCM / FedAvg (target) | quartiles of pairs | FedAvg, s a round | FedCM, s |
|---|---|---|---|---|
"""


def side_by_side(name: str, rounds: int) -> str:
    """A row of the table."""
    plans, times = {}, {"fedavg": [], "fedcm": []}
    with tempfile.TemporaryDirectory() as folder:
        for algorithm in times:
            assembly = assemble(load(experiment(name, algorithm, rounds, Path(folder))))
            server = assembly.algorithm.init_server(assembly.problem.initial())
            plans[algorithm] = training(assembly.algorithm, LocalExecutor(assembly.runner), assembly.plan, server)
        for k in range(rounds):
            for algorithm in sorted(plans, reverse=bool(k % 2)):
                times[algorithm].append(next(plans[algorithm]).metrics["seconds"])
    ratios = [fedcm / fedavg for fedavg, fedcm in zip(times["fedavg"][1:], times["fedcm"][1:], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    fastest = {algorithm: statistics.fmean(sorted(seconds[1:])[: rounds // 4]) for algorithm, seconds in times.items()}
    target = f" (≤ {TARGETS[name]:.2f})" if name in TARGETS else ""
    seconds = " | ".join(f"{fastest[algorithm]:.3f}" for algorithm in times)
    return f"| {name} | {fastest['fedcm'] / fastest['fedavg']:.3f}{target} | {low:.3f}–{high:.3f} | {seconds} |"


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
