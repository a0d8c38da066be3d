"""Rounds and bytes until given values of the headline metric, on the page and as a sheet."""

from collections.abc import Iterable

from fedcm.reports.entry import TargetCost
from fedcm.reports.groups import Group
from fedcm.reports.html.markup import Html, tag, wrap_in_box
from fedcm.reports.metric import ACCURACY
from fedcm.reports.sheet import Sheet
from fedcm.system.formatting import format_bytes, format_count


def render_cost_table(group: Group) -> Html | None:
    """Return the table for the page; None if no run reached a target."""
    targets = group.list_reached_targets()
    if not targets:
        return None
    target = name_target([group])
    caption = f"{group.title}: rounds, and bytes down and up, until {target} was first reached{_describe_bytes(group)}"
    head = tag("tr", tag("th", "algorithm", scope="col"), *(tag("th", f"{t:.0%}", scope="col") for t in targets))
    bodies = []
    for cell in group.cells:
        top = tag("tr", tag("th", cell.name, scope="rowgroup", colspan=len(targets) + 1))
        rows = [
            tag(
                "tr",
                tag("th", row.label, scope="row"),
                *(_render_cell(row.entries[cell.name].find_cost(target)) for target in targets),
            )
            for row in group.rows
            if cell.name in row.entries
        ]
        bodies.append(tag("tbody", *([top] if len(group.cells) > 1 else []), *rows))
    return wrap_in_box(tag("table", tag("caption", caption), tag("thead", head), *bodies, class_="costs"), caption)


def make_cost_sheet(group: Group, name: str) -> Sheet | None:
    """Return the table as a sheet; None if no run reached a target."""
    targets = group.list_reached_targets()
    if not targets:
        return None
    body = [
        (row.label, cell.name, *(_format_cost(row.entries[cell.name].find_cost(target)) for target in targets))
        for cell in group.cells
        for row in group.rows
        if cell.name in row.entries
    ]
    head = ("algorithm", "cell", *(f"{target:.0%}" for target in targets))
    return Sheet(
        name,
        f"{group.title}: rounds and bytes to reach {name_target([group])}{_describe_bytes(group)}",
        head,
        tuple(body),
        texts=2,
    )


def name_target(groups: Iterable[Group]) -> str:
    """Return what the targets of these tables are values of: the headlines of the runs that have targets."""
    headlines = dict.fromkeys(run.headline or ACCURACY for group in groups for run in group.list_runs())
    names = dict.fromkeys(metric.short_title for metric in headlines if metric.is_share)
    if set(names) <= {ACCURACY.short_title}:
        return "an accuracy"
    return f"a value of {' or '.join(names)}"


def _describe_bytes(group: Group) -> str:
    has_graph = any(run.is_decentralised for run in group.list_runs())
    return "; without a server, the bytes between all neighbours" if has_graph else ""


def _render_cell(cost: TargetCost | None) -> Html:
    if cost is None:
        return tag("td", tag("span", "–", aria_label="not reached"))
    share = "" if cost.reached == cost.runs else f", {cost.reached} of {format_count(cost.runs, 'run')}"
    return tag("td", f"{cost.rounds:.0f}", tag("small", format_bytes(cost.bytes) + share))


def _format_cost(cost: TargetCost | None) -> str:
    return "–" if cost is None else f"{cost.rounds:.0f} ({format_bytes(cost.bytes)})"
