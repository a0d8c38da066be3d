"""The measured figures, and the page with ratios, seconds, start-up, memory and commands."""

import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from contestants import OURS, OWN, PEERS, Setting, read_version

sys.path.append(str(Path(__file__).parents[1]))
from pages import describe_machine


@dataclass
class Figures:
    """The figures of one contestant on one workload, over all turns."""

    seconds: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)  # from process start to the start of the first round
    first: list[float] = field(default_factory=list)  # from process start to the end of the first round
    peak: int = 0  # bytes

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def add(self, began: float, ready: float, rounds: list[float], peak: int) -> None:
        """Add a turn; if its memory was measured, only the peak is used."""
        if peak:
            self.peak = peak
            return
        self.seconds += rounds[1:]
        self.start.append(ready - began)
        self.first.append(ready + rounds[0] - began)


Result = list[tuple[tuple[str, Setting], Figures]]

TITLES = {
    "lenet": "LeNet: 500 clients × 100 examples of 3 × 32 × 32, 10 per round, 5 epochs of batch 50",
    "cnn": "CNN with 64 channels: the same data and round",
    "linear": "Softmax regression: 1000 clients × 50 examples of 784, 100 per round, 1 epoch of batch 10",
}
TARGETS = {  # the least accepted time / ours
    "lenet": {"pfl": 1.3, "flower": 1.5, "fedlab": 1.5},
    "cnn": {"pfl": 1.2, "flower": 1.5, "fedlab": 1.5},
    "linear": {"pfl": 8, "flower": 30, "fedlab": 1.5, "fedjax": 5},
}
PAGE = """# Against peers

Written by `make bench-peers`, one section at a time: plain FedAvg, the same data and number of steps, no
evaluation. The contestants take turns in one run, and a turn's first round is not counted. `time / ours` above 1:
fedcm is faster."""

HEAD = [
    "| contestant | time / ours (target) | s per round | start, s | first round done, s | peak memory, MB | settings |",
    "|---|---|---|---|---|---|---|",
]

NOTES = """`start` is the time from the process's start to its first round. If work is deferred to the first round
(Ray's actors, compiling), `first round done` is more informative. Memory is the PSS of all processes together, with
the pages of the data that they touched, measured in a separate turn, the first, in which the data come from the disk.
Settings are processes × threads; for Flower actors, for FedLab trainers beside the server. All settings tried:
`PEERS` in `benchmarks/peers/contestants.py`. pfl does not shuffle a client's batches; the others do.
`fedcm-own-model` trains the model as usually written (ReLU before the pool), which is the peers' model and what users
bring. fedcm and its peers call the same torch kernels. On LeNet and the CNN fedcm gains from the layout, ReLU after
the pool and kept memory ([where a step's time goes](RESULTS.md#where-a-steps-time-goes)), on softmax regression from
a stack of 50 clients and from replaying its operations. FL-Simulator, which has FedCM too, is not among the peers: it
is not a package of a registry and needs torchvision."""


def format_rows(work: str, result: Result) -> list[str]:
    ours = next((figures.median for (name, _), figures in result if name == OURS), None)
    lines = []
    for (name, setting), figures in result:
        ratio = f"{figures.median / ours:.2f}" if ours else ""
        ratio += f" (≥ {TARGETS[work][name]:g})" if ratio and name in TARGETS[work] else ""
        start, first = statistics.median(figures.start), statistics.median(figures.first)
        cells = f"{figures.median:.3f} | {start:.1f} | {first:.1f} | {figures.peak / 1e6:.0f}"
        lines.append(f"| {name} | {ratio} | {cells} | {setting} |")
    return lines


def format_section(work: str, result: Result, turns: int) -> str:
    described = f"`python benchmarks/peers/run.py --works {work} --turns {turns}`: medians. {describe_machine()}"
    return "\n".join([f"## {TITLES[work]}", "", described, "", *HEAD, *format_rows(work, result)])


def format_head() -> str:
    return "\n\n".join([PAGE, NOTES, "\n".join(format_commands())])


def format_commands() -> list[str]:
    lines = ["| contestant | version | command |", "|---|---|---|"]
    lines.append(f"| {OURS} | this folder's | `fedcm run WORK.toml --workers 2 --json` (`benchmarks/bare_loop.py`) |")
    lines.append(
        f"| {OWN} | this folder's | with `--set model.name=plain_models:build_WORK` (`benchmarks/plain_models.py`) |"
    )
    for name in PEERS:
        call = f"`.peers/{name}/bin/python benchmarks/peers/{name}_rounds.py WORK DATA ROUNDS PROCESSES THREADS`"
        lines.append(f"| {name} | {read_version(name)} | {call} |")
    return lines
