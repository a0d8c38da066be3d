"""What every adapter is asked and tells: the work and its data on the command line, one line of JSON at the end.

The data are mapped from their files, so that a peer's processes share the pages.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from works import WORKS, Work


@dataclass(frozen=True)
class Asked:
    name: str  # of the work
    folder: Path  # with x.npy and y.npy
    rounds: int
    processes: int
    threads: int  # a process

    @property
    def work(self) -> Work:
        return WORKS[self.name]

    @cached_property
    def clients(self) -> list[tuple[np.ndarray, np.ndarray]]:
        x, y = (np.load(self.folder / f"{part}.npy", mmap_mode="c") for part in ("x", "y"))
        ends = range(0, len(x), self.work.examples)
        return [(x[start : start + self.work.examples], y[start : start + self.work.examples]) for start in ends]


def asked(words: list[str]) -> Asked:
    name, folder, *numbers = words
    return Asked(name, Path(folder), *map(int, numbers))


def tell(moments: list[float]) -> None:
    """When each round began, and when the last one ended (time.time())."""
    seconds = [after - before for before, after in pairwise(moments)]
    print(json.dumps({"ready": moments[0], "rounds": seconds}), flush=True)
