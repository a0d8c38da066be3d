"""How cost grows: with the population, and with what clients keep.

    python benchmarks/growth.py                    everything into benchmarks/GROWTH.md (half an hour, 45 GB of disk)
    python benchmarks/growth.py population         one part of it; also: states, slowdown, scaling

population   10² … 10⁶ clients made on demand, ten a round, FedCM and SCAFFOLD: round, start-up, memory
states       500 clients × ResNet-18, everyone in both rounds: memory of the processes, of the system's cache, the file
slowdown     state_cost.py: a round of SCAFFOLD with states in a file against the same round with states in memory
scaling      scaling.py: workers 1 → 2 measured, more of them projected

The contestants take turns, so that a noisy machine disturbs them alike; ratios of medians come first.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from process_memory import cached, proportional, tree
from scaling import scaling
from state_cost import slowdown

from fedcm import ClientsOnDemand

HERE = Path(__file__).parent
MEBI, GIBI = 2**20, 2**30
FIELD = np.random.default_rng(0).normal(scale=0.1, size=(50, 784)).astype(np.float32)
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)


HEAD = """# How cost grows

Written by `make bench-growth`, a section by `python benchmarks/growth.py population` (or `states`, `slowdown`,
`scaling`): ratios of medians, the contestants taking turns. Machine: {machine}, shared with other work;
torch {torch}, Python {python}."""

POPULATION = """## Population

Clients made on demand, 10 of them a round, an MLP with one hidden layer on 50 examples of 784 numbers in batches of 10,
60 rounds, {turns} turns, one process. Targets: a round of at most 1.10 times that of 100 clients, a start-up under 5 s,
flat memory.
"""

STATES = """## What clients keep

500 clients × ResNet-18 (11.2 M parameters), everyone in both of two rounds, so that every state is written twice and
read once; one step on two images of 8 × 8, two processes. Processes: the peak of the sum of their proportional shares
(PSS), sampled twice a second. File cache: the peak growth of the whole system's, which it gives back when asked.
Target: under 4 GiB for the processes.
"""


def crowd() -> ClientsOnDemand:
    """`data.source = "growth:crowd"`: 50 examples a client."""
    size = int(os.environ["GROWTH_CLIENTS"])
    return ClientsOnDemand(size, lambda number: (FIELD * np.float32(1 + number % 7), np.arange(50) % 10), 50, 10)


def images() -> ClientsOnDemand:
    """Two tiny images a client, so that 500 clients of ResNet-18 take minutes and not hours."""
    return ClientsOnDemand(500, lambda number: (IMAGE * np.float32(1 + number % 7), np.arange(2)), 2, 10)


@dataclass
class Measured:
    rounds: list[float] = field(default_factory=list)  # seconds, without each run's first
    starts: list[float] = field(default_factory=list)  # seconds from the command to the first round
    memory: int = 0  # peak, bytes: all processes' proportional shares
    cache: int = 0  # peak growth of the system's file cache, bytes
    file: int = 0  # what clients keep, bytes on disk


def run(table: dict[str, Any], workers: int, clients: int, into: Measured, every: float = 0.1) -> None:
    """One run of the command line, watched from outside."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "experiment.toml").write_text(tomli_w.dumps(table))
        words = ["run", str(folder / "experiment.toml"), "--runs-dir", name, "--name", "one", "--workers", str(workers)]
        before, began, first = cached(), time.perf_counter(), None
        process = subprocess.Popen(
            [sys.executable, "-m", "fedcm", *words],
            cwd=HERE,
            env=os.environ | {"GROWTH_CLIENTS": str(clients)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        metrics, watched = folder / "one" / "metrics.jsonl", 0.0
        while process.poll() is None:
            if first is None and metrics.exists() and metrics.stat().st_size:
                first = time.perf_counter()
            if time.perf_counter() - watched > every:
                into.memory = max(into.memory, sum(map(proportional, tree(process.pid))))
                into.cache = max(into.cache, cached() - before)
                watched = time.perf_counter()
            time.sleep(0.002 if first is None else 0.02)
        if process.returncode or first is None:
            raise RuntimeError(process.stderr.read().decode() if process.stderr else "")
        seconds = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()]
        into.rounds += seconds[1:]
        into.starts.append(first - began - seconds[0])
        states = folder / "one" / "clients" / "states.bin"
        into.file = states.stat().st_size if states.exists() else 0


def population(turns: int = 3) -> str:
    """Round time, start-up and memory against how many clients there are."""
    sizes = [10**k for k in range(2, 7)]
    table = {
        **{"name": "growth", "rounds": 60, "data": {"source": "growth:crowd"}},
        **{"participation": {"kind": "fixed", "clients": 10}, "model": {"name": "mlp"}},
        **{"client": {"batch_size": 10, "lr": 0.01}, "evaluation": {"every": 10**6}},
    }
    found = {(name, size): Measured() for name in ("fedcm", "scaffold") for size in sizes}
    for turn in range(turns):
        for name, size in found if turn % 2 == 0 else reversed(found):
            run(table | {"algorithm": {"name": name}}, 1, size, found[name, size])
    lines = [
        "| algorithm | clients | round / that at 10² | memory / that at 10² | round, s | start-up, s | memory, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, size), measured in found.items():
        least, seconds = found[name, sizes[0]], statistics.median(measured.rounds)
        against = f"{seconds / statistics.median(least.rounds):.2f} | {measured.memory / least.memory:.2f}"
        start, memory = statistics.median(measured.starts), measured.memory / MEBI
        lines.append(f"| {name} | {size:,} | {against} | {seconds:.4f} | {start:.1f} | {memory:.0f} |")
    return "\n".join([POPULATION.format(turns=turns), *lines])


def states() -> str:
    """Memory and disk where every client keeps a vector of 11.2 million numbers."""
    table = {
        **{"name": "states", "rounds": 2, "data": {"source": "growth:images"}, "model": {"name": "resnet18"}},
        **{"client": {"steps": 1, "batch_size": 2, "lr": 0.001}, "evaluation": {"every": 10**6}},
        "checkpoints": {"every": 2, "keep": 1},
    }
    lines = [
        "| algorithm | processes, GiB | file cache, GiB | file, GiB | second round, s |",
        "|---|---|---|---|---|",
    ]
    for name in ("fedcm", "scaffold", "feddyn"):
        if shutil.disk_usage(Path.cwd()).free < 45 * GIBI and name != "fedcm":
            raise SystemExit("the part 'states' needs 45 GiB of free disk in the current folder")
        measured = Measured()
        run(table | {"algorithm": {"name": name}}, 2, 500, measured, every=0.5)
        sizes = " | ".join(f"{size / GIBI:.2f}" for size in (measured.memory, measured.cache, measured.file))
        lines.append(f"| {name} | {sizes} | {measured.rounds[-1]:.0f} |")
        print(lines[-1], flush=True)
    return "\n".join([STATES, *lines])


PARTS: dict[str, Callable[[], str]] = {
    "population": population,
    "states": states,
    "slowdown": slowdown,
    "scaling": scaling,
}


def write(section: str) -> None:
    """Into its place in GROWTH.md; the other sections stay as they were measured."""
    path, title = HERE / "GROWTH.md", section.split("\n")[0]
    old = path.read_text().split("\n## ")[1:] if path.exists() else []
    sections = {f"## {text}".split("\n")[0]: f"## {text}".strip() for text in old} | {title: section}
    machine = f"{platform.processor() or platform.machine()}, {multiprocessing.cpu_count()} cores"
    head = HEAD.format(machine=machine, torch=torch.__version__, python=platform.python_version())
    path.write_text("\n\n".join([head, *sections.values()]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help=", ".join(PARTS))
    for part in parser.parse_args().parts or PARTS:
        section = PARTS[part]()
        print(section, flush=True)
        write(section)


if __name__ == "__main__":
    main()
