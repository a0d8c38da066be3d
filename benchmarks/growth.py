"""How cost grows with the population, the client states and the workers.

    python benchmarks/growth.py                    everything, to benchmarks/GROWTH.md (half an hour, 25 GB of disk)
    python benchmarks/growth.py population         one part of it; also: states, slowdown, scaling

population   10² … 10⁶ clients generated on demand, ten per round, FedCM and SCAFFOLD: round, start-up, memory
states       500 clients × ResNet-18: memory of the processes, of the system's cache, the file
slowdown     state_cost.py: a round of SCAFFOLD with states in a file against the same round with states in memory
scaling      scaling.py: workers 1 → 2 measured, more of them projected

The contestants take turns, so that noise affects all equally; ratios of medians come first.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pages import describe_machine, write_section
from run_monitor import RunMeasurement, measure_run
from scaling import measure_scaling
from state_cost import measure_slowdown

from fedcm import ClientsOnDemand
from fedcm.config.experiment import read_experiment
from fedcm.core.round_loop import run_round
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.local import LocalExecutor
from fedcm.runs.build import build
from fedcm.system.hardware import use_one_thread
from fedcm.system.memory import keep_freed_memory

HERE = Path(__file__).parent
MEBI, GIBI = 2**20, 2**30
FIELD = np.random.default_rng(0).normal(scale=0.1, size=(50, 784)).astype(np.float32)
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)


HEAD = """# How cost grows

Written by `make bench-growth`; `python benchmarks/growth.py population` (or `states`, `slowdown`, `scaling`) writes one
section. The contestants take turns, on a machine shared with other work; ratios come first. {machine}"""

POPULATION = """## Population

Clients generated on demand, 10 per round, an MLP with one hidden layer on 50 examples of 784 numbers in batches of 10.
Rounds: {rounds} of each in one process, taking turns round by round; the median of the ratios of the same round.
Start-up (median) and anonymous memory (peak): {turns} runs of the command line each, one process.
Targets: a round of at most 1.10 times that of 100 clients, a start-up under 5 s, flat memory.
"""

STATES = """## Client states

500 clients × ResNet-18 (11.2 M parameters), one step on two images of 8 × 8 per client, two processes. With
SCAFFOLD all 500 clients write a state; with FedDyn, clients of the second round that were in the first read theirs.
The table has peaks, sampled twice per second: anonymous memory of both processes; their PSS, which includes
libraries; the growth of the whole system's file cache, which the system frees on demand. Target: under 4 GiB for
the processes.
"""


def crowd() -> ClientsOnDemand:
    """Return the source `growth:crowd`: 50 examples per client."""
    size = int(os.environ["GROWTH_CLIENTS"])
    return ClientsOnDemand(size, lambda number: (FIELD * np.float32(1 + number % 7), np.arange(50) % 10), 50, 10)


def images() -> ClientsOnDemand:
    """Return the source `growth:images`: two tiny images per client, so that 500 clients of ResNet-18 take minutes."""
    return ClientsOnDemand(500, lambda number: (IMAGE * np.float32(1 + number % 7), np.arange(2)), 2, 10)


def measure_population(rounds: int = 100, turns: int = 3) -> str:
    """Measure round time, start-up and memory against the number of clients; return the section."""
    table = {
        **{"name": "growth", "rounds": rounds, "data": {"source": "growth:crowd"}},
        **{"participation": {"kind": "fixed", "clients": 10}, "model": {"name": "mlp"}},
        **{"client": {"batch_size": 10, "lr": 0.01}, "evaluation": {"every": 10**6}},
    }
    tables = {name: table | {"algorithm": {"name": name}} for name in ("fedcm", "scaffold")}
    contestants = [(name, 10**k) for name in tables for k in range(2, 7)]
    times = time_interleaved({key: (tables[key[0]], key[1]) for key in contestants}, rounds)
    measurements = {key: RunMeasurement() for key in contestants}
    for turn in range(turns):
        for name, size in contestants if turn % 2 == 0 else reversed(contestants):
            measure_run(tables[name] | {"rounds": 20}, 1, size, measurements[name, size])
    lines = [
        "| algorithm | clients | round / that at 10² | memory / that at 10² | round, s | start-up, s | memory, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, size), measured in measurements.items():
        seconds, start = statistics.median(times[name, size]), statistics.median(measured.starts)
        paired = [own / reference for own, reference in zip(times[name, size], times[name, 100], strict=True)]
        memory = measured.anonymous / measurements[name, 100].anonymous
        ratios = f"{statistics.median(paired):.2f} | {memory:.2f}"
        lines.append(
            f"| {name} | {size:,} | {ratios} | {seconds:.4f} | {start:.1f} | {measured.anonymous / MEBI:.0f} |"
        )
    return "\n".join([POPULATION.format(rounds=rounds, turns=turns), *lines])


def time_interleaved(contestants: dict[Any, tuple[dict[str, Any], int]], rounds: int) -> dict[Any, list[float]]:
    """Return the seconds of each round of each contestant; all take turns round by round in this process."""
    keep_freed_memory()  # as `fedcm run` does
    times: dict[Any, list[float]] = {key: [] for key in contestants}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, use_one_thread():
        running = {}
        for number, (key, (table, clients)) in enumerate(contestants.items()):
            os.environ["GROWTH_CLIENTS"] = str(clients)
            setup = build(read_experiment(table))
            params = setup.problem.initial_params
            states = ClientStatesInFile(setup.runner.initial_state, Path(name) / str(number) / "states.bin", 40)
            running[key] = setup, LocalExecutor(setup.runner, states), setup.algorithm.init_server(params)
        for index in range(rounds):
            for key in running if index % 2 else reversed(running):
                setup, executor, server = running[key]
                began = time.perf_counter()
                server, _ = run_round(setup.algorithm, executor, setup.plan, server, index)
                times[key].append(time.perf_counter() - began)
                running[key] = setup, executor, server
    return {key: seconds[1:] for key, seconds in times.items()}


def measure_states() -> str:
    """Measure memory and disk with a state of 11.2 million numbers per client; return the section."""
    table = {
        **{"name": "states", "data": {"source": "growth:images"}, "model": {"name": "resnet18"}},
        **{"client": {"steps": 1, "batch_size": 2, "lr": 0.001}, "evaluation": {"every": 10**6}},
        "checkpoints": {"every": 10**6, "keep": 1},
    }
    lines = [
        "| algorithm | clients per round | rounds | processes, GiB | PSS, GiB | file cache, GiB | file, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, clients, rounds in (("fedcm", 50, 2), ("feddyn", 100, 2), ("scaffold", 500, 1)):
        if shutil.disk_usage(Path.cwd()).free < 30 * GIBI:
            raise SystemExit("'states' needs 30 GiB of free disk space in the current folder")
        measured = RunMeasurement()
        participation = {"participation": {"kind": "fixed", "clients": clients}, "rounds": rounds}
        measure_run(table | participation | {"algorithm": {"name": name}}, 2, 500, measured, every=0.5)
        numbers = (measured.anonymous, measured.pss, measured.cache, measured.file)
        sizes = " | ".join(f"{size / GIBI:.2f}" for size in numbers)
        lines.append(f"| {name} | {clients} | {rounds} | {sizes} |")
        print(lines[-1], flush=True)
    return "\n".join([STATES, *lines])


PARTS: dict[str, Callable[[], str]] = {
    "population": measure_population,
    "states": measure_states,
    "slowdown": measure_slowdown,
    "scaling": measure_scaling,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help=", ".join(PARTS))
    for part in parser.parse_args().parts or PARTS:
        section = PARTS[part]()
        print(section, flush=True)
        write_section("GROWTH.md", HEAD.format(machine=describe_machine()), section)


if __name__ == "__main__":
    main()
