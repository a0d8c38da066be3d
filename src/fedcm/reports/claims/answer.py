"""A table in a sentence: which row leads, and whether the seeds bear it out.

A row is called the most accurate only where it is ahead of every other by more than the uncertainty over seeds. The
leader is chosen by the same figures, so the intervals are widened until a wrong one comes up in 5 % of cases at most.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fedcm.reports.claims.contrast import Contrast, contrast
from fedcm.reports.groups import Group, Row
from fedcm.reports.metric import LOSS
from fedcm.reports.words import write_difference, write_size

Standing = Literal["sure", "one seed", "one seed in part", "within the uncertainty", "two seeds", "a tie"]
_DOUBTS: tuple[Standing, ...] = (
    "one seed",
    "one seed in part",
    "within the uncertainty",
    "two seeds",
)  # the gravest first


class Lead(NamedTuple):
    """Who leads in a cell, how surely, and by how much over the next."""

    cell: str
    rows: tuple[Row, ...]
    standing: Standing
    next: Row | None = None
    over_next: Contrast | None = None
    comparisons: int = 1


def answer(group: Group) -> str:
    leads = [lead for cell in group.cells if (lead := find_leader(group, cell.name))]
    if not leads:
        return _describe_alone(group)
    return _describe_one(group, leads[0]) if len(leads) == 1 else _describe_several(group, leads)


def find_leader(group: Group, cell: str) -> Lead | None:
    """None where there is nothing to compare."""
    labels = group.leaders(cell)
    there = [row for row in group.rows if cell in row.entries and row.entries[cell].judged]
    first = [row for row in there if row.label in labels]
    others = [row for row in there if row.label not in labels]
    if not first:
        return None
    if len(first) > 1:
        return Lead(cell, tuple(first), "a tie")
    gains = first[0].entries[cell].gains()
    found = [contrast([(1, gains), (-1, row.entries[cell].gains())], group.metric is LOSS) for row in others]
    closest = min(range(len(others)), key=lambda k: found[k].difference)
    comparisons = max(1, math.ceil(len(found) / 2))  # of both sides of an interval one alone can make a wrong leader
    doubts = {_find_doubt(one, comparisons) for one in found if not one.is_surely_above(comparisons)}
    gravest: list[Standing] = [doubt for doubt in _DOUBTS if doubt in doubts]
    standing = gravest[0] if gravest else "sure"
    return Lead(cell, tuple(first), standing, others[closest], found[closest], comparisons)


def _find_doubt(over: Contrast, comparisons: int) -> Standing:
    """Why a lead is not sure."""
    if over.error is None:
        return "one seed" if over.seeds == "one seed" else "one seed in part"
    return "two seeds" if over.is_clear_of_zero(comparisons) else "within the uncertainty"


def _describe_one(group: Group, lead: Lead) -> str:
    metric, names = group.metric, " and ".join(row.label for row in lead.rows)
    figure = _write(group, lead.rows[0], lead.cell)
    if lead.next is None or lead.over_next is None:
        return f"{names} share the {metric.extreme} {metric.title} in this table: {figure}."
    words = [figure, f"next {lead.next.label} {_write(group, lead.next, lead.cell)}"]
    known = lead.over_next.error is not None  # otherwise how many seeds there are is said already
    difference = (
        write_difference(lead.over_next, metric, lead.comparisons) if known else write_size(lead.over_next, metric)
    )
    words += [difference] if difference else []
    if lead.standing == "sure":
        said = f"{names} is the most accurate" if metric is not LOSS else f"{names} has the lowest {metric.title}"
    else:
        said = f"{names} has the {metric.extreme} {metric.title} in this table ({lead.standing})"
    return f"{said}: {', '.join(words)}."


def _describe_several(group: Group, leads: Sequence[Lead]) -> str:
    metric = group.metric
    sure = [lead for lead in leads if lead.standing == "sure"]
    sentences = []
    if sure:
        said = "Most accurate" if metric is not LOSS else f"Lowest {metric.title}"
        sentences.append(f"{said}: {_count(sure, len(leads))}{_least(group, sure)}.")
    if doubtful := [lead for lead in leads if lead.standing != "sure"]:
        standings = ", ".join(dict.fromkeys(lead.standing for lead in doubtful))
        extreme = metric.extreme.capitalize()
        sentences.append(f"{extreme} {metric.title} in this table ({standings}): {_count(doubtful, len(leads))}.")
    return " ".join(sentences)


def _count(leads: Sequence[Lead], tested: int) -> str:
    led: dict[str, int] = {}
    for lead in leads:
        for row in lead.rows:
            led[row.label] = led.get(row.label, 0) + 1
    ordered = sorted(led.items(), key=lambda item: -item[1])
    counts = [
        f"{label} in {f'all {tested}' if count == tested else f'{count} of {tested}'} cells" for label, count in ordered
    ]
    return "; ".join(counts)


def _least(group: Group, leads: Sequence[Lead]) -> str:
    """By how much at least, in the cell where it is least."""
    found = [lead.over_next.interval(lead.comparisons) for lead in leads if lead.over_next]
    lowest = min((ends[0] for ends in found if ends), default=float("inf"))
    if lowest == float("inf"):
        return ""
    size = f"{lowest:.2f} points" if group.metric is not LOSS else f"{lowest:.3g}"
    return f", by {size} or more (95 % intervals over seeds)"


def _describe_alone(group: Group) -> str:
    means = [
        f"{row.label} {group.metric.write_with_unit(mean)} in {cell}"
        for row in group.rows
        for cell, entry in row.entries.items()
        if (mean := entry.mean()) is not None
    ]
    return f"Nothing to compare yet: {'; '.join(means[:3])}." if means else "Nothing has been evaluated yet."


def _write(group: Group, row: Row, cell: str) -> str:
    entry = row.entries[cell]
    return entry.write() + (" %" if group.metric is not LOSS and entry.mean() is not None else "")
