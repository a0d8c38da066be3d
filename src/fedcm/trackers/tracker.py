"""Report the rounds of a run to trackers: programs such as TensorBoard that show the runs of many projects.

The run's metrics.jsonl is the source of a tracker's log. After a resume, every round is reported again from round 0 on.
So a log has each round once, even if a process was killed before, and is complete if tracking starts late.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

from fedcm.config.overrides import read_table
from fedcm.runs.folder import RunFolder
from fedcm.system.formatting import flatten_table

FlatTable = dict[str, str | int | float | bool]  # a table without inner tables: their keys are joined, as in client.lr

_SUMMED = ("bytes_down", "bytes_up")  # metrics that are reported as running totals


class TrackedRun(NamedTuple):
    """The run that a tracker logs."""

    folder: Path
    settings: FlatTable  # the resolved experiment

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
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

    def log_round(self, point: RoundValues) -> None:
        """Log one round."""
        ...

    def end(self, summary: FlatTable | None) -> None:
        """End the log; `summary` is None if the run was stopped and may be resumed."""
        ...


def track(
    rounds: Iterator[dict[str, Any]],
    folder: RunFolder,
    first: int,
    kinds: Sequence[type[Tracker]],
    notify: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Pass on the rounds of a run and report them to a tracker of each kind.

    Args:
        rounds: lines of metrics.jsonl, as the rounds finish.
        folder: the folder of the run.
        first: the first of these rounds; the rounds before it are read from the folder.
        kinds: the tracker classes.
        notify: Called with one sentence if a tracker fails.
    """
    logs = [_Log(kind, folder, notify) for kind in kinds]
    for log in logs:
        log.begin(first)
    try:
        for metrics in rounds:
            for log in logs:
                log.log_round(metrics)
            yield metrics
    finally:
        for log in logs:
            log.end()


def track_finished(folder: RunFolder, kinds: Sequence[type[Tracker]], notify: Callable[[str], None]) -> None:
    """Report a run that has ended, for trackers that may not have logged it."""
    if kinds:
        with folder.hold_lock():
            for _ in track(iter(()), folder, len(folder.read_metrics()), kinds, notify):
                pass


@final
class _Log:
    """A tracker, until it raises an exception: this gives one message, and the run continues without the tracker."""

    def __init__(self, kind: type[Tracker], folder: RunFolder, notify: Callable[[str], None]) -> None:
        self.kind, self.folder, self.notify = kind, folder, notify
        self.tracker: Tracker | None = None
        self.totals: Counter[str] = Counter()

    def begin(self, first: int) -> None:
        with self._disable_on_error():
            tracker = self.kind()
            tracker.begin(TrackedRun(self.folder.path, make_flat_table(read_table(self.folder.experiment))))
            self.tracker = tracker
            for metrics in self.folder.read_metrics(first):
                tracker.log_round(self._collect_values(metrics))

    def log_round(self, metrics: dict[str, Any]) -> None:
        if self.tracker is not None:
            with self._disable_on_error():
                self.tracker.log_round(self._collect_values(metrics))

    def end(self) -> None:
        if self.tracker is not None:
            with self._disable_on_error():
                summary = self.folder.read_summary()
                self.tracker.end(None if summary is None else make_flat_table(summary))

    def _collect_values(self, metrics: dict[str, Any]) -> RoundValues:
        self.totals.update({f"total_{key}": metrics[key] for key in _SUMMED})
        left_out = ("round", *_SUMMED)
        values = {key: value for key, value in make_flat_table(metrics).items() if key not in left_out} | self.totals
        return RoundValues(metrics["round"], {k: float(v) for k, v in values.items() if isinstance(v, int | float)})

    @contextmanager
    def _disable_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.tracker = None
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.notify(f"{self.kind.__name__} is disabled for this run ({reason:.300}); the run itself continues")


def make_flat_table(table: Mapping[str, Any]) -> FlatTable:
    """Return a table without inner tables; values that are not text or numbers become JSON, None is left out.

    >>> make_flat_table({"rounds": 3, "client": {"lr": 0.1, "clip": None}, "model": {"hidden": [8, 8]}})
    {'rounds': 3, 'client.lr': 0.1, 'model.hidden': '[8, 8]'}
    """
    return {
        path: value if isinstance(value, str | int | float) else json.dumps(value, default=str)
        for path, value in flatten_table(table).items()
        if value is not None
    }
