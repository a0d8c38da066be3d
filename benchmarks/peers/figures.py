"""What was measured, and the page that tells it: ratios first, then seconds, start-up, memory and commands."""

import math
import os
import platform
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from contestants import OURS, PEERS, Setting, version


@dataclass
class Figures:
    """Of one contestant on one work, over all turns."""

    seconds: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)  # process start until the first round begins
    first: list[float] = field(default_factory=list)  # process start until the first round is done
    peak: int = 0  # bytes

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def add(self, began: float, ready: float, rounds: list[float], peak: int) -> None:
        self.seconds += rounds[1:]
        self.start.append(ready - began)
        self.first.append(ready + rounds[0] - began)
        self.peak = max(self.peak, peak)


Results = dict[str, list[tuple[tuple[str, Setting], Figures]]]

HEAD = [
    "| work | contestant | time / ours | s a round | start, s | first round done, s | peak memory, MB | settings |",
    "|---|---|---|---|---|---|---|---|",
]

NOTES = """`start`: from the process's start until its first round begins; where work is put off into the first round
(Ray's actors, compiling), `first round done` tells more. Memory: PSS of all processes together, with the pages of the
data that they touched. Settings: processes × threads; for Flower actors, for FedLab trainers beside the server. What
was tried: `PEERS` in `benchmarks/peers/contestants.py`. pfl does not shuffle a client's batches; the others do."""


def rows(work: str, result: list[tuple[tuple[str, Setting], Figures]]) -> list[str]:
    ours = next((figures.median for (name, _), figures in result if name == OURS), None)
    lines = []
    for (name, setting), figures in result:
        ratio = f"{figures.median / ours:.2f}" if ours else ""
        start, first = statistics.median(figures.start), statistics.median(figures.first)
        told = f"{figures.median:.3f} | {start:.1f} | {first:.1f} | {figures.peak / 1e6:.0f}"
        lines.append(f"| {work} | {name} | {ratio} | {told} | {setting} |")
    return lines


def ratios(results: Results) -> list[str]:
    lines = [f"| work | {' | '.join(f'{name} / {OURS}' for name in PEERS)} |", "|---" * (len(PEERS) + 1) + "|"]
    for work, result in results.items():
        medians: dict[str, float] = {}
        for (name, _), figures in result:  # of several settings the fastest counts
            medians[name] = min(figures.median, medians.get(name, math.inf))
        cells = [f"{medians[name] / medians[OURS]:.2f}" if name in medians else "–" for name in PEERS]
        lines.append(f"| {work} | {' | '.join(cells)} |")
    return lines


def page(results: Results, turns: int) -> str:
    what = [
        "# Against peers",
        f"Written by `make bench-peers`: medians over {turns} turns of each contestant, taken one after another in one "
        "run; a turn's first\nround does not count. Plain FedAvg, the same data and as many steps, no evaluation.",
        machine(),
        "## Time a round, peer / fedcm (more than 1: fedcm is faster)",
        "\n".join(ratios(results)),
        "## Figures",
        "\n".join([*HEAD, *(line for work, result in results.items() for line in rows(work, result))]),
        NOTES,
        "## Commands",
        "\n".join(commands()),
    ]
    return "\n\n".join(what) + "\n"


def commands() -> list[str]:
    lines = ["| contestant | version | command |", "|---|---|---|"]
    lines.append(f"| {OURS} | this folder's | `fedcm run WORK.toml --workers 2 --json` (`benchmarks/bare_loop.py`) |")
    for name in PEERS:
        call = f"`.peers/{name}/bin/python benchmarks/peers/{name}_rounds.py WORK DATA ROUNDS PROCESSES THREADS`"
        lines.append(f"| {name} | {version(name)} | {call} |")
    return lines


def machine() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    kind = found.group(1) if found else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"Machine: {kind}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}."
