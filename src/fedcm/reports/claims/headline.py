"""The sentence above a table: which row leads, and how sure that is.

A row is called the most accurate only if it is ahead of every other row by more than the uncertainty over seeds. The
leader is selected by the same values, so the intervals are widened to keep the error rate at 5 %.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fedcm.reports.claims.contrast import Contrast, compare, format_difference, format_size
from fedcm.reports.groups import Group, ResultRow
from fedcm.reports.metric import ACCURACY

Certainty = Literal["sure", "one seed", "one side has one seed", "within the uncertainty", "two seeds", "tie"]
_DOUBTS: tuple[Certainty, ...] = (
    "one seed",
    "one side has one seed",
    "within the uncertainty",
    "two seeds",
)  # the strongest first


class Lead(NamedTuple):
    """Which rows lead in a cell, how sure that is, and the difference to the next row."""

    cell: str
    rows: tuple[ResultRow, ...]
    certainty: Certainty
    next: ResultRow | None = None
    over_next: Contrast | None = None
    comparisons: int = 1


def write_headline(group: Group) -> str:
    """Return one or two sentences that say which row of a table leads."""
    leads = [lead for cell in group.cells if (lead := find_lead(group, cell.name))]
    if not leads:
        return _describe_without_comparison(group)
    return _describe_one(group, leads[0]) if len(leads) == 1 else _describe_several(group, leads)


def find_lead(group: Group, cell: str) -> Lead | None:
    """Return the leading rows of a cell; None if there is nothing to compare."""
    labels = group.list_leaders(cell)
    rows = [row for row in group.rows if cell in row.entries and row.entries[cell].is_comparable]
    first = [row for row in rows if row.label in labels]
    others = [row for row in rows if row.label not in labels]
    if not first:
        return None
    if len(first) > 1:
        return Lead(cell, tuple(first), "tie")
    gains = first[0].entries[cell].list_gains()
    contrasts = [
        compare([(1, gains), (-1, row.entries[cell].list_gains())], not group.metric.is_share) for row in others
    ]
    closest = min(range(len(others)), key=lambda k: contrasts[k].difference)
    comparisons = max(1, math.ceil(len(contrasts) / 2))  # only one side of an interval can make a wrong leader
    doubts = {_find_doubt(one, comparisons) for one in contrasts if not one.is_significantly_above(comparisons)}
    strongest: list[Certainty] = [doubt for doubt in _DOUBTS if doubt in doubts]
    certainty = strongest[0] if strongest else "sure"
    return Lead(cell, tuple(first), certainty, others[closest], contrasts[closest], comparisons)


def _find_doubt(contrast: Contrast, comparisons: int) -> Certainty:
    """Return why a lead is not sure."""
    if contrast.error is None:
        return "one seed" if contrast.seeds == "one seed" else "one side has one seed"
    return "two seeds" if contrast.excludes_zero(comparisons) else "within the uncertainty"


def _describe_one(group: Group, lead: Lead) -> str:
    metric, names = group.metric, " and ".join(row.label for row in lead.rows)
    value = _format_entry(group, lead.rows[0], lead.cell)
    if lead.next is None or lead.over_next is None:
        return f"{names} share the {metric.extreme} {metric.title} in this table: {value}."
    parts = [value, f"next {lead.next.label} {_format_entry(group, lead.next, lead.cell)}"]
    has_interval = lead.over_next.error is not None  # otherwise the certainty already gives the number of seeds
    difference = (
        format_difference(lead.over_next, metric, lead.comparisons)
        if has_interval
        else format_size(lead.over_next, metric)
    )
    parts += [difference] if difference else []
    if lead.certainty == "sure":
        sentence = f"{names} {metric.describe_best()}"
    else:
        sentence = f"{names} has the {metric.extreme} {metric.title} in this table ({lead.certainty})"
    return f"{sentence}: {', '.join(parts)}."


def _describe_several(group: Group, leads: Sequence[Lead]) -> str:
    metric = group.metric
    sure = [lead for lead in leads if lead.certainty == "sure"]
    sentences = []
    if sure:
        start = "Most accurate" if metric == ACCURACY else f"{metric.extreme.capitalize()} {metric.title}"
        sentences.append(f"{start}: {_count_cells(sure, len(leads))}{_describe_smallest_lead(group, sure)}.")
    if doubtful := [lead for lead in leads if lead.certainty != "sure"]:
        certainties = ", ".join(dict.fromkeys(lead.certainty for lead in doubtful))
        start = f"{metric.extreme.capitalize()} {metric.title} in this table ({certainties})"
        sentences.append(f"{start}: {_count_cells(doubtful, len(leads))}.")
    return " ".join(sentences)


def _count_cells(leads: Sequence[Lead], compared: int) -> str:
    counts: dict[str, int] = {}
    for lead in leads:
        for row in lead.rows:
            counts[row.label] = counts.get(row.label, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    parts = [
        f"{label} in {f'all {compared}' if count == compared else f'{count} of {compared}'} cells"
        for label, count in ordered
    ]
    return "; ".join(parts)


def _describe_smallest_lead(group: Group, leads: Sequence[Lead]) -> str:
    """Describe the lower end of the interval in the cell where it is smallest."""
    intervals = [lead.over_next.interval(lead.comparisons) for lead in leads if lead.over_next]
    lowest = min((ends[0] for ends in intervals if ends), default=float("inf"))
    if lowest == float("inf"):
        return ""
    size = f"{lowest:.2f} points" if group.metric.is_share else f"{lowest:.3g}"
    return f", by {size} or more (95 % intervals over seeds)"


def _describe_without_comparison(group: Group) -> str:
    means = [
        f"{row.label} {group.metric.format_with_unit(mean)} in {cell}"
        for row in group.rows
        for cell, entry in row.entries.items()
        if (mean := entry.mean()) is not None
    ]
    return f"Nothing to compare yet: {'; '.join(means[:3])}." if means else "Nothing has been evaluated yet."


def _format_entry(group: Group, row: ResultRow, cell: str) -> str:
    entry = row.entries[cell]
    return entry.format() + (" %" if group.metric.is_share and entry.mean() is not None else "")
