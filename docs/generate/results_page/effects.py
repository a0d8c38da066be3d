"""Differences between FedCM and other algorithms in the cells of a study: 95 % intervals, effect sizes, seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from fedcm.reports.claims.contrast import Contrast, compare
from fedcm.reports.entry import Entry
from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_signed
from results_page.cells import NOT_PLANNED, PAIR_MARK, PAIR_NOTE, format_interval, join_parts, name_cpu, write_table
from results_page.study_runs import Results, StudyRuns

GRIDS = (
    "table1",
    "table2",
    "heterogeneity",
    "resnet8",
    "resnet18",
    "cnn",
    "fashion",
    "shakespeare",
)  # studies that compare algorithms
_OWN = "fedcm"


class Effect(NamedTuple):
    """FedCM against another algorithm in one cell."""

    study: str
    column: str
    rounds: int
    other: str
    own: Entry
    rival: Entry

    @property
    def where(self) -> str:
        """The study and the cell in words."""
        return ", ".join(filter(None, (self.study, self.column, f"{self.rounds} rounds")))

    @property
    def contrast(self) -> Contrast:
        """FedCM minus the other, in points."""
        return compare([(1, self.own.list_gains()), (-1, self.rival.list_gains())])

    @property
    def cohens_d(self) -> float | None:
        """The difference in pooled standard deviations; None if a side has fewer than two seeds or diverged."""
        return compute_cohens_d(self.own.list_values(), self.rival.list_values())

    @property
    def is_across_cpus(self) -> bool:
        """Whether the two runs of a seed used different kinds of CPU."""
        own, rival = ({run.seed: name_cpu(run) for run in entry.counted_runs} for entry in (self.own, self.rival))
        return any(own[seed] != rival[seed] for seed in own.keys() & rival.keys())


def compute_cohens_d(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the difference of means in pooled standard deviations; None if it is not defined.

    >>> compute_cohens_d([3.0, 5.0], [1.0, 3.0])
    1.414213562373095
    """
    if min(len(first), len(second)) < 2:
        return None
    weights = len(first) - 1, len(second) - 1
    variance = weights[0] * statistics.variance(first) + weights[1] * statistics.variance(second)
    deviation = math.sqrt(variance / sum(weights))
    return (statistics.fmean(first) - statistics.fmean(second)) / deviation if deviation else None


def list_effects(runs: StudyRuns) -> list[Effect]:
    """Return FedCM against every other algorithm in every cell that has both."""
    effects = []
    for cell in (cell for cell in runs.cells if cell.algorithm == _OWN):
        same = [one for one in runs.cells if (one.column, one.rounds) == (cell.column, cell.rounds)]
        effects += [
            Effect(runs.study.title, cell.column, cell.rounds, other.algorithm, cell.entry, other.entry)
            for other in same
            if other.algorithm != _OWN and cell.entry and other.entry
        ]
    return effects


def list_closest(results: Results) -> list[Effect]:
    """Return, for every cell of every study, FedCM against the best of the others."""
    closest: dict[str, Effect] = {}
    for name in GRIDS:
        for effect in list_effects(results[name]):
            known = closest.get(effect.where)
            if known is None or _rank(effect) > _rank(known):
                closest[effect.where] = effect
    return list(closest.values())


def _rank(effect: Effect) -> float:
    mean = effect.rival.mean()
    return -math.inf if mean is None else mean


def write_effects(runs: StudyRuns) -> str:
    """Return a table of the differences in a study; empty if there are none."""
    effects = list_effects(runs)
    if not effects:
        return ""
    rows = [(f"{effect.column or 'all'}, {effect.rounds} rounds", *_write_row(effect)) for effect in effects]
    note = PAIR_NOTE if any(effect.is_across_cpus for effect in effects) else ""
    header = ("cell", "FedCM against", "difference in points", "95 % interval", "Cohen's d", "seeds")
    return join_parts(write_table(header, rows, texts=2), note)


def _write_row(effect: Effect) -> tuple[str, ...]:
    size = effect.cohens_d
    return (
        get_algorithm_title(effect.other),
        format_points(effect),
        format_interval(effect.contrast),
        NOT_PLANNED if size is None else format_signed(size).removeprefix("+"),
        describe_seeds(effect),
    )


def format_points(effect: Effect) -> str:
    """Format a difference in points, or say which side diverged."""
    difference = effect.contrast.difference
    if math.isfinite(difference):
        return format_signed(difference)
    return "both diverged" if math.isnan(difference) else f"{'other' if difference > 0 else 'FedCM'} diverged"


def describe_seeds(effect: Effect) -> str:
    """Describe the seeds of both sides, with a mark if their runs used different kinds of CPU."""
    counts = [len(entry.counted_runs) for entry in (effect.own, effect.rival)]
    text = effect.contrast.seeds if min(counts) > 1 or max(counts) == 1 else f"{counts[0]} and {counts[1]}"
    return f"{text} {PAIR_MARK}" if effect.is_across_cpus else text
