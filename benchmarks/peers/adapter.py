"""The interface of every adapter: the workload and its data on the command line, one line of JSON at the end.

The data are memory-mapped, so that a peer's processes share the pages.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from workloads import WORKLOADS, Workload


@dataclass(frozen=True)
class PeerTask:
    """A workload and how to run it."""

    name: str  # of the workload
    folder: Path  # with x.npy and y.npy
    rounds: int
    processes: int
    threads: int  # per process

    @property
    def work(self) -> Workload:
        return WORKLOADS[self.name]

    @cached_property
    def clients(self) -> list[tuple[np.ndarray, np.ndarray]]:
        x, y = (np.load(self.folder / f"{part}.npy", mmap_mode="c") for part in ("x", "y"))
        ends = range(0, len(x), self.work.examples)
        return [(x[start : start + self.work.examples], y[start : start + self.work.examples]) for start in ends]


def parse_task(words: list[str]) -> PeerTask:
    """Parse the command line arguments of an adapter."""
    name, folder, *numbers = words
    return PeerTask(name, Path(folder), *map(int, numbers))


def print_times(moments: list[float]) -> None:
    """Print the result; `moments` are the starts of all rounds and the end of the last (time.time())."""
    seconds = [after - before for before, after in pairwise(moments)]
    print(json.dumps({"ready": moments[0], "rounds": seconds}), flush=True)
