"""The table of results, on the page and as a sheet."""

from fedcm.reports.claims.paper import describe_scale_difference
from fedcm.reports.entry import MAIN, MEASURES, Entry
from fedcm.reports.groups import Group, ResultCell, ResultRow
from fedcm.reports.html.client_table import average_over_clients
from fedcm.reports.html.markup import Html, join, tag, wrap_in_box
from fedcm.reports.scores import CLIENT_COLUMNS
from fedcm.reports.sheet import Sheet
from fedcm.system.formatting import format_count


def render_result_table(group: Group) -> Html:
    """Return the table for the page. It holds all three measures; the page shows one of them at a time."""
    caption = f"{group.title}: {group.metric.caption}, "
    uniform = len(_list_seed_counts(group)) == 1
    head = tag("tr", tag("th", "algorithm", scope="col"), *(_render_heading(group, cell) for cell in group.cells))
    rows = [
        tag(
            "tr",
            tag("th", _render_swatch(row), row.label, scope="row"),
            *(_render_cell(group, row, cell.name, uniform) for cell in group.cells),
        )
        for row in group.rows
    ]
    measures = [tag("span", group.describe_measure(m), class_=f"measure {m}") for m in MEASURES]
    about = tag("caption", caption, *measures, f", {_describe_seeds(group)}", *_render_legend(group))
    better = None if group.metric.higher_is_better else "lower"
    table = tag("table", about, tag("thead", head), tag("tbody", *rows), class_="result", data_better=better)
    return wrap_in_box(table, caption + _describe_seeds(group))


def make_result_sheet(group: Group, name: str) -> Sheet:
    """Return the table of the main measure as a sheet."""
    cells = [cell.name for cell in group.cells]
    leaders = {cell: group.list_leaders(cell) for cell in cells}
    bold = {
        (r, c + 1) for r, row in enumerate(group.rows) for c, cell in enumerate(cells) if row.label in leaders[cell]
    }
    body = [(row.label, *(_format_entry(row.entries.get(cell)) for cell in cells)) for row in group.rows]
    note = "; published figures in brackets" if _has_published(group) else ""
    note += f", which have another scale: {scale}" if (scale := _describe_scale(group)) else ""
    caption = f"{group.title}: {group.metric.caption}, {group.describe_measure()}, {_describe_seeds(group)}{note}"
    long_cells = [f"{cell} ({group.describe_measure(cell=cell)})" for cell in cells]
    csv_cells = [f"{cell} ({group.metric.caption}, {group.describe_measure(cell=cell)})" for cell in cells]
    head = ("algorithm", *(cells if group.has_uniform_averaging else long_cells))
    return Sheet(name, caption, head, tuple(body), frozenset(bold), csv_head=("algorithm", *csv_cells))


def make_numbers_sheet(groups: tuple[Group, ...]) -> Sheet:
    """Return every number in a column of its own, for other programs.

    `diverged` lists the rounds in which seeds diverged; `mean_last_rounds` is the number of last rounds that
    `mean_last` averages. The columns `clients_…` are over clients on their own test data, in the last evaluation.
    """
    measures = [f"{measure}_{kind}" for measure in MEASURES for kind in ("mean", "deviation")]
    places = ("table", "cell", "row", "algorithm", "seeds", "finished", "diverged")
    head = (
        *places,
        "metric",
        "mean_last_rounds",
        *measures,
        "published",
        *(f"clients_{key}" for key in CLIENT_COLUMNS),
    )
    body = []
    for group in groups:
        for row in group.rows:
            for cell, entry in row.entries.items():
                numbers = [n for measure in MEASURES for n in (entry.mean(measure), entry.deviation(measure))]
                clients = average_over_clients(entry) or [None] * len(CLIENT_COLUMNS)
                texts = ["" if number is None else repr(number) for number in (*numbers, entry.published, *clients)]
                runs = entry.counted_runs
                finished = str(all(run.state == "finished" for run in runs)).lower()
                diverged = " ".join(str(run.divergence_round) for run in runs if run.divergence_round is not None)
                averaged = " ".join(map(str, sorted(entry.averaged_rounds)))
                place = (group.title, cell, row.label, row.algorithm, str(len(runs)), finished, diverged)
                body.append((*place, group.metric.column, averaged, *texts))
    return Sheet("numbers", "Every number of the report; accuracies in %", head, tuple(body))


def _render_heading(group: Group, cell: ResultCell) -> Html:
    """Return a column's heading; it names the averaged rounds if the columns differ in them."""
    if group.has_uniform_averaging:
        return tag("th", cell.name, scope="col")
    averaged = tag("small", f" {group.describe_measure(cell=cell.name)}", class_=f"measure {MAIN}")
    return tag("th", cell.name, averaged, scope="col")


def _render_swatch(row: ResultRow) -> Html:
    return tag("span", class_="swatch", data_row=row.label, aria_hidden="true")


def _render_cell(group: Group, row: ResultRow, cell: str, uniform: bool) -> Html:
    entry = row.entries.get(cell)
    if entry is None:
        return tag("td", tag("span", "–", aria_label="not run"))
    parts = [tag("span", _render_value(group, row, cell, measure), class_=f"measure {measure}") for measure in MEASURES]
    if entry.published is not None:
        unseen = tag("span", " published ", class_="unseen")
        parts.append(tag("span", unseen, f"{entry.published:.2f}", class_="published", title="published"))
    notes = [format_count(len(entry.counted_runs), "seed")] if not uniform else []
    notes += [_describe_unfinished(entry)] if any(run.state in ("running", "stopped") for run in entry.runs) else []
    if notes:
        parts.append(tag("small", ", ".join(notes)))
    return tag("td", *parts)


def _render_value(group: Group, row: ResultRow, cell: str, measure: str) -> Html:
    entry = row.entries[cell]
    mean, deviation = entry.mean(measure), entry.deviation(measure)
    if mean is None and entry.divergence:
        return tag("span", entry.divergence, class_="diverged")
    if mean is None:
        return tag("span", "–", aria_label="not evaluated")
    number = tag("b" if row.label in group.list_leaders(cell, measure) else "span", group.metric.format(mean))
    if deviation is None:
        return number
    return join(number, tag("span", f" ± {group.metric.format_deviation(deviation)}", class_="deviation"))


def _describe_unfinished(entry: Entry) -> str:
    """Describe the unfinished run that has the fewest rounds."""
    unfinished = [run for run in entry.runs if run.state in ("running", "stopped")]
    run = min(unfinished, key=lambda run: run.rounds_done)
    start = "another " if entry.is_finished else ""
    return f"{start}{run.state} at {run.rounds_done} of {run.experiment['rounds']} rounds"


def _render_legend(group: Group) -> list[Html]:
    parts = [join(f". The {group.metric.extreme} value of a column is in "), tag("b", "bold")]
    if _has_published(group):
        parts += [Html(", published figures are in "), tag("span", "grey", class_="published")]
    if scale := _describe_scale(group):
        parts.append(join(f" and have another scale: {scale}"))
    return [*parts, Html(".")]


def _describe_scale(group: Group) -> str:
    return describe_scale_difference(group.list_runs())


def _has_published(group: Group) -> bool:
    return any(entry.published is not None for row in group.rows for entry in row.entries.values())


def _describe_seeds(group: Group) -> str:
    counts = _list_seed_counts(group)
    if counts == {1}:
        return "one seed"
    return f"mean ± standard deviation over {format_count(max(counts), 'seed') if len(counts) == 1 else 'seeds'}"


def _list_seed_counts(group: Group) -> set[int]:
    return {len(entry.counted_runs) for row in group.rows for entry in row.entries.values()}


def _format_entry(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    published = f" ({entry.published:.2f})" if entry.published is not None else ""
    return entry.format() + published + ("" if entry.is_finished else " …")
