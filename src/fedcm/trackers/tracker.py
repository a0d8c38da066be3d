"""Report the rounds of a run to trackers: programs such as TensorBoard that show the runs of many projects.

The run's metrics.jsonl is the source of a tracker's log. After a resume, every round is reported again from round 0 on.
So a log has each round once, even if a process was killed before, and is complete if tracking starts late.
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

FlatTable = dict[str, str | int | float | bool]  # a table without inner tables: their keys are joined, as in client.lr

_SUMMED = ("bytes_down", "bytes_up")  # metrics that are reported as running totals


class TrackedRun(NamedTuple):
    """The run that a tracker logs."""

    folder: Path
    settings: FlatTable  # the resolved experiment

    @property
    def name(self) -> str:
        return self.folder.name


class RoundValues(NamedTuple):
    """The numbers of one round."""

    round: int
    values: dict[str, float]


class Tracker(Protocol):
    """Logs one run. An exception that it raises disables the tracker, and does not stop the run."""

    def begin(self, run: TrackedRun) -> None:
        """Start the log. All rounds follow, from 0 on: drop what an earlier start logged, or skip those rounds."""
        ...

    def round(self, point: RoundValues) -> None:
        """Log one round."""
        ...

    def end(self, summary: FlatTable | None) -> None:
        """End the log; `summary` is None if the run was stopped and may be resumed."""
        ...


def track(
    rounds: Iterator[dict[str, Any]], folder: RunFolder, first: int, kinds: Sequence[type[Tracker]]
) -> Iterator[dict[str, Any]]:
    """Pass on the rounds of a run and report them to a tracker of each kind.

    Args:
        rounds: lines of metrics.jsonl, as the rounds finish.
        folder: the folder of the run.
        first: the first of these rounds; the rounds before it are read from the folder.
        kinds: the tracker classes.
    """
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
    """Report a run that has ended, for trackers that may not have logged it."""
    if kinds:
        with folder.locked():
            for _ in track(iter(()), folder, len(folder.read_metrics()), kinds):
                pass


@final
class _Log:
    """A tracker, until it raises an exception: this prints one line, and the run continues without the tracker."""

    def __init__(self, kind: type[Tracker], folder: RunFolder) -> None:
        self.kind, self.folder = kind, folder
        self.tracker: Tracker | None = None
        self.totals: Counter[str] = Counter()

    def begin(self, first: int) -> None:
        with self._disable_on_error():
            tracker = self.kind()
            tracker.begin(TrackedRun(self.folder.path, flatten(read_table(self.folder.experiment))))
            self.tracker = tracker
            for metrics in self.folder.read_metrics(first):
                tracker.round(self._collect_values(metrics))

    def round(self, metrics: dict[str, Any]) -> None:
        if self.tracker is not None:
            with self._disable_on_error():
                self.tracker.round(self._collect_values(metrics))

    def end(self) -> None:
        if self.tracker is not None:
            with self._disable_on_error():
                summary = self.folder.read_summary()
                self.tracker.end(None if summary is None else flatten(summary))

    def _collect_values(self, metrics: dict[str, Any]) -> RoundValues:
        self.totals.update({f"total_{key}": metrics[key] for key in _SUMMED})
        values = {key: value for key, value in flatten(metrics).items() if key != "round" and key not in _SUMMED}
        values |= self.totals
        return RoundValues(metrics["round"], {k: float(v) for k, v in values.items() if isinstance(v, int | float)})

    @contextmanager
    def _disable_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.tracker = None
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"{self.kind.__name__} is disabled for this run ({reason:.300}); the run itself continues")


def flatten(table: Mapping[str, Any], prefix: str = "") -> FlatTable:
    """Return a table without inner tables; values that are not text or numbers become JSON, None is left out.

    >>> flatten({"rounds": 3, "client": {"lr": 0.1, "clip": None}, "model": {"hidden": [8, 8]}})
    {'rounds': 3, 'client.lr': 0.1, 'model.hidden': '[8, 8]'}
    """
    flat: FlatTable = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = value if isinstance(value, str | int | float) else json.dumps(value, default=str)
    return flat
