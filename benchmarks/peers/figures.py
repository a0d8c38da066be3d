"""What was measured, and the page that tells it: ratios first, then seconds, start-up, memory and commands."""

import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from contestants import OURS, PEERS, Setting, version

sys.path.append(str(Path(__file__).parents[1]))
from pages import machine


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
        """Of a turn that was looked at only its peak counts."""
        if peak:
            self.peak = peak
            return
        self.seconds += rounds[1:]
        self.start.append(ready - began)
        self.first.append(ready + rounds[0] - began)


Result = list[tuple[tuple[str, Setting], Figures]]

TITLES = {
    "lenet": "LeNet: 500 clients × 100 examples of 3 × 32 × 32, 10 a round, 5 epochs of batch 50",
    "cnn": "CNN with 64 channels: the same data and round",
    "linear": "Softmax regression: 1000 clients × 50 examples of 784, 100 a round, 1 epoch of batch 10",
}
TARGETS = {  # of time / ours, at least
    "lenet": {"pfl": 1.3, "flower": 1.5, "fedlab": 1.5},
    "cnn": {"pfl": 1.2, "flower": 1.5, "fedlab": 1.5},
    "linear": {"pfl": 8, "flower": 30, "fedlab": 1.5, "fedjax": 5},
}
PAGE = """# Against peers

Written by `make bench-peers`, a section at a time: plain FedAvg, the same data and as many steps, no evaluation. The
contestants take turns in one run, and a turn's first round does not count. `time / ours` above 1: fedcm is faster."""

HEAD = [
    "| contestant | time / ours (target) | s a round | start, s | first round done, s | peak memory, MB | settings |",
    "|---|---|---|---|---|---|---|",
]

NOTES = """`start`: from the process's start until its first round begins; where work is put off into the first round
(Ray's actors, compiling), `first round done` tells more. Memory: PSS of all processes together, with the pages of the
data that they touched, in a turn of its own that is not timed. Settings: processes × threads; for Flower actors, for
FedLab trainers beside the server. What was tried: `PEERS` in `benchmarks/peers/contestants.py`. pfl does not shuffle a
client's batches; the others do. fedcm and its peers call the same kernels of torch, so on LeNet and the CNN it gains
what layout, ReLU after the pool and kept memory save ([where a step's time goes](RESULTS.md#where-a-steps-time-goes)),
and on softmax regression what a stack of 50 clients and replaying its operations save."""


def rows(work: str, result: Result) -> list[str]:
    ours = next((figures.median for (name, _), figures in result if name == OURS), None)
    lines = []
    for (name, setting), figures in result:
        ratio = f"{figures.median / ours:.2f}" if ours else ""
        ratio += f" (≥ {TARGETS[work][name]:g})" if ratio and name in TARGETS[work] else ""
        start, first = statistics.median(figures.start), statistics.median(figures.first)
        told = f"{figures.median:.3f} | {start:.1f} | {first:.1f} | {figures.peak / 1e6:.0f}"
        lines.append(f"| {name} | {ratio} | {told} | {setting} |")
    return lines


def section(work: str, result: Result, turns: int) -> str:
    described = f"`python benchmarks/peers/run.py --works {work} --turns {turns}`: medians. {machine()}"
    return "\n".join([f"## {TITLES[work]}", "", described, "", *HEAD, *rows(work, result)])


def head() -> str:
    return "\n\n".join([PAGE, NOTES, "\n".join(commands())])


def commands() -> list[str]:
    lines = ["| contestant | version | command |", "|---|---|---|"]
    lines.append(f"| {OURS} | this folder's | `fedcm run WORK.toml --workers 2 --json` (`benchmarks/bare_loop.py`) |")
    for name in PEERS:
        call = f"`.peers/{name}/bin/python benchmarks/peers/{name}_rounds.py WORK DATA ROUNDS PROCESSES THREADS`"
        lines.append(f"| {name} | {version(name)} | {call} |")
    return lines
