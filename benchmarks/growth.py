"""How cost grows: with the population, and with what clients keep.

    python benchmarks/growth.py                    everything into benchmarks/GROWTH.md (half an hour, 25 GB of disk)
    python benchmarks/growth.py population         one part of it; also: states, slowdown, scaling

population   10² … 10⁶ clients made on demand, ten a round, FedCM and SCAFFOLD: round, start-up, memory
states       500 clients × ResNet-18: memory of the processes, of the system's cache, the file
slowdown     state_cost.py: a round of SCAFFOLD with states in a file against the same round with states in memory
scaling      scaling.py: workers 1 → 2 measured, more of them projected

The contestants take turns, so that a noisy machine disturbs them alike; ratios of medians come first.
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
from pages import machine, write_section
from scaling import scaling
from state_cost import slowdown
from watched import Measured, run

from fedcm import ClientsOnDemand
from fedcm.config.experiment import read_experiment
from fedcm.core.round_loop import run_round
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.local import LocalExecutor
from fedcm.runs.assembly import assemble
from fedcm.system.memory import keep_freed_memory
from fedcm.system.threads import one_thread

HERE = Path(__file__).parent
MEBI, GIBI = 2**20, 2**30
FIELD = np.random.default_rng(0).normal(scale=0.1, size=(50, 784)).astype(np.float32)
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)


HEAD = """# How cost grows

Written by `make bench-growth`, a section by `python benchmarks/growth.py population` (or `states`, `slowdown`,
`scaling`): ratios, the contestants taking turns, on a machine shared with other work. {machine}"""

POPULATION = """## Population

Clients made on demand, 10 of them a round, an MLP with one hidden layer on 50 examples of 784 numbers in batches of 10.
Rounds: {rounds} of each in one process, taking turns round by round; the median of the ratios of the same round.
Start-up (median) and memory (greatest; what is no file's): {turns} runs of the command line each, one process.
Targets: a round of at most 1.10 times that of 100 clients, a start-up under 5 s, flat memory.
"""

STATES = """## What clients keep

500 clients × ResNet-18 (11.2 M parameters), one step on two images of 8 × 8 a client, two processes. With SCAFFOLD all
500 leave a state; with FedDyn those of the second round who were in the first read theirs back. Peaks, sampled twice a
second: memory of both processes that is no file's; their proportional shares, libraries included (PSS); the growth of
the whole system's file cache, which it gives back when asked. Target: under 4 GiB for the processes.
"""


def crowd() -> ClientsOnDemand:
    """`data.source = "growth:crowd"`: 50 examples a client."""
    size = int(os.environ["GROWTH_CLIENTS"])
    return ClientsOnDemand(size, lambda number: (FIELD * np.float32(1 + number % 7), np.arange(50) % 10), 50, 10)


def images() -> ClientsOnDemand:
    """Two tiny images a client, so that 500 clients of ResNet-18 take minutes and not hours."""
    return ClientsOnDemand(500, lambda number: (IMAGE * np.float32(1 + number % 7), np.arange(2)), 2, 10)


def population(rounds: int = 100, turns: int = 3) -> str:
    """Round time, start-up and memory against how many clients there are."""
    table = {
        **{"name": "growth", "rounds": rounds, "data": {"source": "growth:crowd"}},
        **{"participation": {"kind": "fixed", "clients": 10}, "model": {"name": "mlp"}},
        **{"client": {"batch_size": 10, "lr": 0.01}, "evaluation": {"every": 10**6}},
    }
    tables = {name: table | {"algorithm": {"name": name}} for name in ("fedcm", "scaffold")}
    contestants = [(name, 10**k) for name in tables for k in range(2, 7)]
    times = interleaved({key: (tables[key[0]], key[1]) for key in contestants}, rounds)
    found = {key: Measured() for key in contestants}
    for turn in range(turns):
        for name, size in contestants if turn % 2 == 0 else reversed(contestants):
            run(tables[name] | {"rounds": 20}, 1, size, found[name, size])
    lines = [
        "| algorithm | clients | round / that at 10² | memory / that at 10² | round, s | start-up, s | memory, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, size), measured in found.items():
        seconds, start = statistics.median(times[name, size]), statistics.median(measured.starts)
        paired = [one / least for one, least in zip(times[name, size], times[name, 100], strict=True)]
        against = f"{statistics.median(paired):.2f} | {measured.own / found[name, 100].own:.2f}"
        lines.append(f"| {name} | {size:,} | {against} | {seconds:.4f} | {start:.1f} | {measured.own / MEBI:.0f} |")
    return "\n".join([POPULATION.format(rounds=rounds, turns=turns), *lines])


def interleaved(contestants: dict[Any, tuple[dict[str, Any], int]], rounds: int) -> dict[Any, list[float]]:
    """Seconds of each round of each, all in this process and each round of one beside the same round of the others."""
    keep_freed_memory()  # as `fedcm run` does
    times: dict[Any, list[float]] = {key: [] for key in contestants}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, one_thread():
        going = {}
        for number, (key, (table, clients)) in enumerate(contestants.items()):
            os.environ["GROWTH_CLIENTS"] = str(clients)
            made = assemble(read_experiment(table))
            params = made.problem.initial()
            states = ClientStatesInFile(made.algorithm, params, Path(name) / str(number) / "states.bin", 40)
            going[key] = made, LocalExecutor(made.runner, states), made.algorithm.init_server(params)
        for index in range(rounds):
            for key in going if index % 2 else reversed(going):
                made, executor, server = going[key]
                began = time.perf_counter()
                server, _ = run_round(made.algorithm, executor, made.plan, server, index)
                times[key].append(time.perf_counter() - began)
                going[key] = made, executor, server
    return {key: seconds[1:] for key, seconds in times.items()}


def states() -> str:
    """Memory and disk where every client keeps a vector of 11.2 million numbers."""
    table = {
        **{"name": "states", "data": {"source": "growth:images"}, "model": {"name": "resnet18"}},
        **{"client": {"steps": 1, "batch_size": 2, "lr": 0.001}, "evaluation": {"every": 10**6}},
        "checkpoints": {"every": 10**6, "keep": 1},
    }
    lines = [
        "| algorithm | clients a round | rounds | processes, GiB | with libraries, GiB | file cache, GiB | file, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, clients, rounds in (("fedcm", 50, 2), ("feddyn", 100, 2), ("scaffold", 500, 1)):
        if shutil.disk_usage(Path.cwd()).free < 30 * GIBI:
            raise SystemExit("the part 'states' needs 30 GiB of free disk in the current folder")
        measured = Measured()
        taking_part = {"participation": {"kind": "fixed", "clients": clients}, "rounds": rounds}
        run(table | taking_part | {"algorithm": {"name": name}}, 2, 500, measured, every=0.5)
        numbers = (measured.own, measured.shares, measured.cache, measured.file)
        sizes = " | ".join(f"{size / GIBI:.2f}" for size in numbers)
        lines.append(f"| {name} | {clients} | {rounds} | {sizes} |")
        print(lines[-1], flush=True)
    return "\n".join([STATES, *lines])


PARTS: dict[str, Callable[[], str]] = {
    "population": population,
    "states": states,
    "slowdown": slowdown,
    "scaling": scaling,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help=", ".join(PARTS))
    for part in parser.parse_args().parts or PARTS:
        section = PARTS[part]()
        print(section, flush=True)
        write_section("GROWTH.md", HEAD.format(machine=machine()), section)


if __name__ == "__main__":
    main()
