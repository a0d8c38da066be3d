"""The score of a trial: its validation metric, averaged over the last rounds. The test set is never read.

A run's `metrics.jsonl` has the keys `validation_loss` and `validation_<metric>` in every evaluated round. This module
is the only one of the search that reads them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from fedcm.runs.summary import read_points, summarise_points

VALIDATION = "data.validation"
LOSS = "validation_loss"
ACCURACY = "validation_accuracy"


class Objective(NamedTuple):
    """The validation curve of a run and its score."""

    metric: str  # its key in metrics.jsonl
    points: list[tuple[int, float]]  # (round from 0, value)
    score: float  # mean of the last rounds' evaluations, as in a run's summary


def is_higher_better(metric: str) -> bool:
    """Return whether more of a validation metric is better."""
    return metric != LOSS


def read_objective(lines: Sequence[Mapping[str, Any]]) -> Objective | None:
    """Return the validation curve and the score of a run; None before its first evaluation on validation data.

    Args:
        lines: The rounds of the run's `metrics.jsonl`.
    """
    for metric in (ACCURACY, LOSS):
        if points := read_points([dict(line) for line in lines], metric):
            summary = summarise_points(points, len(lines), lower_is_better=not is_higher_better(metric))
            assert summary is not None
            return Objective(metric, points, summary["mean_last"])
    return None


@final
class MetricsReader:
    """Reads the rounds of a run in progress; only new lines are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self._bytes_read = 0

    def update(self) -> list[dict[str, Any]]:
        """Return all rounds up to now."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._bytes_read:  # a resume truncated the file
                    self.lines, self._bytes_read = [], 0
                file.seek(self._bytes_read)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return self.lines
        self._bytes_read += len(complete) + len(newline)
        self.lines += [json.loads(line) for line in complete.splitlines()]
        return self.lines
