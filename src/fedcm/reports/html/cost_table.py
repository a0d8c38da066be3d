"""Rounds and bytes to given accuracies, on the page and as a sheet."""

from fedcm.reports.costs import Cost, cost, targets_of
from fedcm.reports.groups import Group
from fedcm.reports.html.markup import Html, boxed, tag
from fedcm.reports.sheet import Sheet
from fedcm.reports.words import amount


def cost_table(group: Group) -> Html | None:
    targets = targets_of(group)
    if not targets:
        return None
    caption = f"{group.title}: rounds, and bytes down and up, until an accuracy was first reached"
    head = tag("tr", tag("th", "algorithm", scope="col"), *(tag("th", f"{t:.0%}", scope="col") for t in targets))
    bodies = []
    for cell in group.cells:
        top = tag("tr", tag("th", cell.name, scope="rowgroup", colspan=len(targets) + 1))
        rows = [
            tag("tr", tag("th", row.label, scope="row"), *(_cell(cost(row.entries[cell.name], t)) for t in targets))
            for row in group.rows
            if cell.name in row.entries
        ]
        bodies.append(tag("tbody", *([top] if len(group.cells) > 1 else []), *rows))
    return boxed(tag("table", tag("caption", caption), tag("thead", head), *bodies, class_="costs"), caption)


def _cell(found: Cost | None) -> Html:
    if found is None:
        return tag("td", tag("span", "–", aria_label="not reached"))
    share = "" if found.reached == found.runs else f", {found.reached} of {found.runs} runs"
    return tag("td", _rounds(found), tag("small", amount(found.bytes) + share))


def cost_sheet(group: Group, name: str) -> Sheet | None:
    targets = targets_of(group)
    if not targets:
        return None
    body = [
        (row.label, cell.name, *(_text(cost(row.entries[cell.name], target)) for target in targets))
        for cell in group.cells
        for row in group.rows
        if cell.name in row.entries
    ]
    head = ("algorithm", "cell", *(f"{target:.0%}" for target in targets))
    return Sheet(name, f"{group.title}: rounds and bytes to reach an accuracy", head, tuple(body), texts=2)


def _text(found: Cost | None) -> str:
    return "–" if found is None else f"{_rounds(found)} ({amount(found.bytes)})"


def _rounds(found: Cost) -> str:
    return f"{found.rounds:.0f}"
