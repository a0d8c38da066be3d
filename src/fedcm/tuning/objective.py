"""The score of a trial: its validation metric, averaged over the last rounds. The test set is never read.

A run's `metrics.jsonl` has the keys `validation_loss` and `validation_METRIC` in every evaluated round. No other module
of the search reads them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from fedcm.runs.summary import read_points, read_traits, summarise_points

VALIDATION = "data.validation"


class ValidationMetric(NamedTuple):
    """A metric on validation data."""

    key: str  # in metrics.jsonl
    higher_is_better: bool
    is_share: bool  # between 0 and 1, shown in percent

    @property
    def title(self) -> str:
        """Its name for people, with its unit.

        >>> ValidationMetric("validation_accuracy", True, True).title, LOSS.title
        ('validation accuracy in %', 'validation loss')
        """
        return self.key.replace("_", " ") + (" in %" if self.is_share else "")

    def scale(self, value: float) -> float:
        """Return a value as it is shown."""
        return 100 * value if self.is_share else value

    def format(self, value: float) -> str:
        """Format a value.

        >>> ValidationMetric("validation_accuracy", True, True).format(0.91234), LOSS.format(0.25)
        ('91.23', '0.2500')
        """
        return f"{100 * value:.2f}" if self.is_share else f"{value:#.4g}"


LOSS = ValidationMetric("validation_loss", higher_is_better=False, is_share=False)


class Objective(NamedTuple):
    """The validation curve of a run and its score."""

    metric: ValidationMetric
    points: list[tuple[int, float]]  # (round from 0, value)
    score: float  # mean of the last rounds' evaluations, as in a run's summary


def read_objective(lines: Sequence[dict[str, Any]], provenance: Mapping[str, Any]) -> Objective | None:
    """Return the validation curve and the score of a run; None before its first evaluation on validation data.

    The metric is the headline of the run, the first of `evaluation.metrics`; the loss if that is not defined.

    Args:
        lines: The rounds of the run's `metrics.jsonl`.
        provenance: The run's `provenance.json`, which has the direction and the range of its metrics.
    """
    name, traits = next(iter(read_traits(provenance).items()))
    headline = ValidationMetric(f"validation_{name}", traits["higher_is_better"], traits["is_share"])
    for metric in (headline, LOSS):
        if points := read_points(lines, metric.key):
            summary = summarise_points(points, len(lines), lower_is_better=not metric.higher_is_better)
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
