"""Rounds as they pass by, told to trackers: programs that show the runs of many projects, such as TensorBoard.

The run's own metrics.jsonl is the truth, and a tracker's log is made from it: after a resume every round is told again
from 0 on, so that a log has each round once, whatever was lost with the process that wrote it, and has them all when
it was asked for late.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

from fedcm.config.overrides import read_table
from fedcm.runs.folder import RunFolder
from fedcm.runs.progress import say

Flat = dict[str, str | int | float | bool]  # a table whose inner tables are in its keys: client.lr

_SUMMED = ("bytes_down", "bytes_up")


class TrackedRun(NamedTuple):
    folder: Path
    settings: Flat  # the resolved experiment

    @property
    def name(self) -> str:
        return self.folder.name


class Point(NamedTuple):
    """What is drawn over a round."""

    round: int
    values: dict[str, float]


class Tracker(Protocol):
    """One run's log elsewhere. What it raises ends the log, and never the run."""

    def begin(self, run: TrackedRun) -> None:
        """All rounds from 0 on follow: what the log holds of an earlier start is dropped, or passed over again."""
        ...

    def round(self, point: Point) -> None: ...

    def end(self, summary: Flat | None) -> None:
        """None of a run that was stopped, and may go on."""
        ...


def track(
    rounds: Iterator[dict[str, Any]], folder: RunFolder, first: int, kinds: Sequence[type[Tracker]]
) -> Iterator[dict[str, Any]]:
    """The same rounds, from `first` on, told to a tracker of each kind as they pass."""
    logs = [_Log(kind, folder) for kind in kinds]
    for log in logs:
        log.begin(first)
    try:
        for metrics in rounds:
            for log in logs:
                log.round(metrics)
            yield metrics
    finally:
        for log in logs:
            log.end()


def track_finished(folder: RunFolder, kinds: Sequence[type[Tracker]]) -> None:
    """A run that is over, for trackers that may not have seen it."""
    if kinds:
        with folder.locked():
            for _ in track(iter(()), folder, len(folder.read_metrics()), kinds):
                pass


@final
class _Log:
    """A tracker until it fails: that is told in a line, and the run goes on without it."""

    def __init__(self, kind: type[Tracker], folder: RunFolder) -> None:
        self.kind, self.folder = kind, folder
        self.tracker: Tracker | None = None
        self.totals: Counter[str] = Counter()

    def begin(self, first: int) -> None:
        with self._failing_alone():
            tracker = self.kind()
            tracker.begin(TrackedRun(self.folder.path, flat(read_table(self.folder.experiment))))
            self.tracker = tracker
            for metrics in self.folder.read_metrics(first):
                tracker.round(self._point(metrics))

    def round(self, metrics: dict[str, Any]) -> None:
        if self.tracker is not None:
            with self._failing_alone():
                self.tracker.round(self._point(metrics))

    def end(self) -> None:
        if self.tracker is not None:
            with self._failing_alone():
                summary = self.folder.read_summary()
                self.tracker.end(None if summary is None else flat(summary))

    def _point(self, metrics: dict[str, Any]) -> Point:
        self.totals.update({f"total_{key}": metrics[key] for key in _SUMMED})
        drawn = {key: value for key, value in flat(metrics).items() if key != "round" and key not in _SUMMED}
        drawn |= self.totals
        return Point(metrics["round"], {k: float(v) for k, v in drawn.items() if isinstance(v, int | float)})

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.tracker = None
            why = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"{self.kind.__name__} is given up for this run ({why:.300}); the run itself goes on")


def flat(table: Mapping[str, Any], inside: str = "") -> Flat:
    """
    >>> flat({"rounds": 3, "client": {"lr": 0.1, "clip": None}, "model": {"hidden": [8, 8]}})
    {'rounds': 3, 'client.lr': 0.1, 'model.hidden': '[8, 8]'}
    """
    found: Flat = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{inside}{key}.")
        elif value is not None:
            found[f"{inside}{key}"] = value if isinstance(value, str | int | float) else json.dumps(value, default=str)
    return found
