"""Settings I and II after equally many rounds: the mean accuracy over rounds that the runs of both have."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedcm.reports.claims.contrast import compare
from fedcm.reports.digest import Digest
from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_signed
from results_page.cells import NOT_PLANNED, format_interval, join_parts, write_table
from results_page.study_runs import StudyCell, StudyRuns

_WINDOW = (100, 200)  # rounds that both settings have
_HEADER = ("setting I", "setting II", "change in points", "n in I and II", "FedCM loses more by", "95 % interval")
_OWN = "fedcm"


class Fall(NamedTuple):
    """One algorithm in setting I and in setting II."""

    label: str
    first: Mapping[int, float]  # by seed, mean in % over the window; infinite if the run diverged
    second: Mapping[int, float]

    @property
    def has_diverged(self) -> bool:
        """Whether a run of one of the settings diverged."""
        return not all(map(math.isfinite, (*self.first.values(), *self.second.values())))


def write_window(runs: StudyRuns) -> str:
    """Return what every algorithm loses from setting I to II, by split; empty without runs."""
    by_split: dict[str, list[Fall]] = {}
    for cell, other in _list_pairs(runs.cells):
        fall = _measure_fall(get_algorithm_title(cell.algorithm), cell.runs, other.runs)
        by_split.setdefault(cell.labels["split"], []).append(fall)
    rows = [[split, *row] for split, falls in by_split.items() for row in _write_falls(falls)]
    if not rows:
        return ""
    text = f"Mean accuracy in % over rounds {_WINDOW[0] + 1} to {_WINDOW[1]} of both settings, by split:"
    return join_parts(text, write_table(("split", "algorithm", *_HEADER), rows, texts=2))


def _list_pairs(cells: Sequence[StudyCell]) -> list[tuple[StudyCell, StudyCell]]:
    """Return the cells of setting I, each with the same cell of setting II, if both have runs."""
    return [
        (cell, other)
        for cell in cells
        for other in cells
        if cell.labels.get("setting") == "I"
        and other.algorithm == cell.algorithm
        and other.labels == {**cell.labels, "setting": "II"}
        and cell.runs
        and other.runs
    ]


def _measure_fall(label: str, first: Sequence[Digest], second: Sequence[Digest]) -> Fall:
    return Fall(label, {run.seed: _average(run) for run in first}, {run.seed: _average(run) for run in second})


def _average(run: Digest) -> float:
    """Return the mean accuracy in % over the window; −∞ if the run diverged."""
    if run.divergence_round is not None:
        return -math.inf
    pairs = zip(run.curve.round, run.curve.test_accuracy, strict=True)
    return statistics.fmean(
        100 * value for done, value in pairs if value is not None and _WINDOW[0] < done <= _WINDOW[1]
    )


def _write_falls(falls: Sequence[Fall]) -> list[list[str]]:
    """Return a row for each algorithm."""
    own = next((fall for fall in falls if fall.label == get_algorithm_title(_OWN)), None)
    return [_write_row(fall, own) for fall in falls]


def _write_row(fall: Fall, own: Fall | None) -> list[str]:
    counts = f"{len(fall.first)} and {len(fall.second)}"
    means = [_format_mean(values) for values in (fall.first, fall.second)]
    if fall.has_diverged:
        return [fall.label, *means, NOT_PLANNED, counts, NOT_PLANNED, NOT_PLANNED]
    change = compare([(1, fall.second), (-1, fall.first)]).difference
    row = [fall.label, *means, format_signed(change), counts]
    if own is None or fall is own or own.has_diverged:
        return [*row, NOT_PLANNED, NOT_PLANNED]
    more = compare([(1, own.first), (-1, own.second), (-1, fall.first), (1, fall.second)])
    return [*row, format_signed(more.difference), format_interval(more)]


def _format_mean(values: Mapping[int, float]) -> str:
    mean = statistics.fmean(values.values())
    return f"{mean:.2f}" if math.isfinite(mean) else "diverged"
