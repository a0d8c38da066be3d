"""The table that a report opens with, on the page and as a sheet."""

from fedcm.reports.claims.paper import other_scale
from fedcm.reports.digest import Digest
from fedcm.reports.entry import MAIN, MEASURES, Entry
from fedcm.reports.groups import Cell, Group, Row
from fedcm.reports.html.markup import Html, boxed, joined, tag
from fedcm.reports.sheet import Sheet
from fedcm.reports.words import several


def result_table(group: Group) -> Html:
    """All three measures are in it; the page shows one of them at a time."""
    caption = f"{group.title}: {group.metric.caption}, "
    uniform = len(_counts(group)) == 1
    head = tag("tr", tag("th", "algorithm", scope="col"), *(_head(group, cell) for cell in group.cells))
    rows = [
        tag(
            "tr",
            tag("th", _key(row), row.label, scope="row"),
            *(_cell(group, row, c.name, uniform) for c in group.cells),
        )
        for row in group.rows
    ]
    about = tag("caption", caption, *_measures(group), f", {_seeds(group)}", *_legend(group))
    whole = tag("table", about, tag("thead", head), tag("tbody", *rows), class_="result")
    return boxed(whole, caption + _seeds(group))


def _measures(group: Group, cell: str | None = None) -> list[Html]:
    """Which rounds the figures are of; the page shows what belongs to the measure that is chosen."""
    return [tag("span", group.describe_measure(m, cell), class_=f"measure {m}") for m in MEASURES]


def _head(group: Group, cell: Cell) -> Html:
    """A column says which rounds are averaged in it where others average more or fewer."""
    if group.is_averaged_alike:
        return tag("th", cell.name, scope="col")
    averaged = tag("small", f" {group.describe_measure(cell=cell.name)}", class_=f"measure {MAIN}")
    return tag("th", cell.name, averaged, scope="col")


def _key(row: Row) -> Html:
    return tag("span", class_="swatch", data_row=row.label, aria_hidden="true")


def _cell(group: Group, row: Row, cell: str, uniform: bool) -> Html:
    entry = row.entries.get(cell)
    if entry is None:
        return tag("td", tag("span", "–", aria_label="not run"))
    parts = [
        tag("span", _figure(group, row, cell, entry, measure), class_=f"measure {measure}") for measure in MEASURES
    ]
    if entry.published is not None:
        unseen = tag("span", " published ", class_="unseen")
        parts.append(tag("span", unseen, f"{entry.published:.2f}", class_="published", title="published"))
    notes = [several(len(entry.counted), "seed")] if not uniform else []
    notes += [_unfinished(entry)] if any(run.state in ("running", "stopped") for run in entry.runs) else []
    if notes:
        parts.append(tag("small", ", ".join(notes)))
    return tag("td", *parts)


def _figure(group: Group, row: Row, cell: str, entry: Entry, measure: str) -> Html:
    mean, deviation = entry.mean(measure), entry.deviation(measure)
    if mean is None and entry.diverged:
        return tag("span", entry.diverged, class_="diverged")
    if mean is None:
        return tag("span", "–", aria_label="not evaluated")
    number = tag("b" if row.label in group.leaders(cell, measure) else "span", group.metric.write(mean))
    if deviation is None:
        return number
    return joined(number, tag("span", f" ± {group.metric.write_deviation(deviation)}", class_="deviation"))


def _unfinished(entry: Entry) -> str:
    def done(run: Digest) -> str:
        return f"{run.rounds_done} of {run.experiment['rounds']} rounds"

    behind = min((run for run in entry.runs if run.state in ("running", "stopped")), key=lambda run: run.rounds_done)
    more = "another " if entry.over else ""
    return f"{more}{behind.state} at {done(behind)}"


def _legend(group: Group) -> list[Html]:
    words = [joined(f". The {group.metric.extreme} of a column in "), tag("b", "bold")]
    return [
        *words,
        *([Html(", published figures in "), tag("span", "grey", class_="published")] if _has_published(group) else []),
        *([joined(f"; these are of another scale: {scale}")] if (scale := _scale(group)) else []),
    ]


def _scale(group: Group) -> str:
    return other_scale(run for row in group.rows for entry in row.entries.values() for run in entry.runs)


def _has_published(group: Group) -> bool:
    return any(entry.published is not None for row in group.rows for entry in row.entries.values())


def _seeds(group: Group) -> str:
    counts = _counts(group)
    if counts == {1}:
        return "one seed"
    return f"mean ± standard deviation over {several(max(counts), 'seed') if len(counts) == 1 else 'seeds'}"


def _counts(group: Group) -> set[int]:
    return {len(entry.counted) for row in group.rows for entry in row.entries.values()}


def result_sheet(group: Group, name: str) -> Sheet:
    cells = [cell.name for cell in group.cells]
    leaders = {cell: group.leaders(cell) for cell in cells}
    bold = {
        (r, c + 1) for r, row in enumerate(group.rows) for c, cell in enumerate(cells) if row.label in leaders[cell]
    }
    body = [(row.label, *(_text(row.entries.get(cell)) for cell in cells)) for row in group.rows]
    brackets = "; published figures in brackets" if _has_published(group) else ""
    brackets += f", of another scale: {scale}" if (scale := _scale(group)) else ""
    caption = f"{group.title}: {group.metric.caption}, {group.describe_measure()}, {_seeds(group)}{brackets}"
    short = cells if group.is_averaged_alike else [f"{cell} ({group.describe_measure(cell=cell)})" for cell in cells]
    full = [f"{cell} ({group.metric.caption}, {group.describe_measure(cell=cell)})" for cell in cells]
    head, csv_head = ("algorithm", *short), ("algorithm", *full)
    return Sheet(name, caption, head, tuple(body), frozenset(bold), csv_head=csv_head)


def _text(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    published = f" ({entry.published:.2f})" if entry.published is not None else ""
    return entry.write() + published + ("" if entry.over else " …")


def numbers_sheet(groups: tuple[Group, ...]) -> Sheet:
    """Every number by itself, for other programs; `diverged` are the rounds in which seeds did, `mean_last_rounds` the
    last rounds that `mean_last` is over."""
    measured = [f"{measure}_{kind}" for measure in MEASURES for kind in ("mean", "deviation")]
    who = ("table", "cell", "row", "algorithm", "seeds", "finished", "diverged")
    head = (*who, "metric", "mean_last_rounds", *measured, "published")
    body = []
    for group in groups:
        for row in group.rows:
            for cell, entry in row.entries.items():
                figures = [f for measure in MEASURES for f in (entry.mean(measure), entry.deviation(measure))]
                texts = ["" if figure is None else repr(figure) for figure in (*figures, entry.published)]
                finished = str(all(run.state == "finished" for run in entry.counted)).lower()
                diverged = " ".join(str(run.diverged_in) for run in entry.counted if run.diverged_in is not None)
                averaged = " ".join(map(str, sorted(entry.averaged_rounds)))
                who = (group.title, cell, row.label, row.algorithm, str(len(entry.counted)), finished, diverged)
                body.append((*who, group.metric.column, averaged, *texts))
    return Sheet("numbers", "Every number of the report; accuracies in %", head, tuple(body))
