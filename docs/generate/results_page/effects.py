"""Differences between FedCM and other algorithms in the cells of a study: 95 % intervals, effect sizes, seeds."""

import math
from typing import NamedTuple

from fedcm.reports.groups import get_algorithm_title
from results_page.cells import format_interval, join_parts, write_table
from results_page.difference import Difference, describe_seeds, explain_pairs, format_lead, format_size
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
    difference: Difference  # FedCM minus the other

    @property
    def where(self) -> str:
        """The study and the cell in words."""
        return ", ".join(filter(None, (self.study, self.column, f"{self.rounds} rounds")))


def list_effects(runs: StudyRuns) -> list[Effect]:
    """Return FedCM against every other algorithm in every cell that has both."""
    effects = []
    for cell in (cell for cell in runs.cells if cell.algorithm == _OWN):
        same = [one for one in runs.cells if (one.column, one.rounds) == (cell.column, cell.rounds)]
        effects += [
            Effect(runs.study.title, cell.column, cell.rounds, one.algorithm, Difference(cell.entry, one.entry))
            for one in same
            if one.algorithm != _OWN and cell.entry and one.entry
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
    mean = effect.difference.other.mean()
    return -math.inf if mean is None else mean


def write_effects(runs: StudyRuns) -> str:
    """Return a table of the differences in a study; empty if there are none."""
    effects = list_effects(runs)
    if not effects:
        return ""
    rows = [(f"{effect.column or 'all'}, {effect.rounds} rounds", *_write_row(effect)) for effect in effects]
    header = ("cell", "FedCM against", "difference in points", "95 % interval", "Cohen's d", "seeds")
    return join_parts(write_table(header, rows, texts=2), explain_pairs(effect.difference for effect in effects))


def _write_row(effect: Effect) -> tuple[str, ...]:
    return (
        get_algorithm_title(effect.other),
        format_lead(effect.difference),
        format_interval(effect.difference.contrast),
        format_size(effect.difference),
        describe_seeds(effect.difference),
    )
