"""All metrics of the runs on test and validation data, as a table beside that of the headline."""

import statistics
from collections.abc import Mapping
from typing import Any

from fedcm.reports.digest import Digest
from fedcm.reports.entry import MAIN, Entry
from fedcm.reports.groups import Group
from fedcm.reports.html.markup import Html, make_table
from fedcm.reports.metric import Metric, make_metric

_TABLES = {"test": "metrics", "validation": "validation"}  # by set: the key in a summary


def render_metric_table(group: Group) -> Html | None:
    """Return the table of a group; None if its runs have no metric besides the headline on the test data."""
    entries = [(row.label, cell, entry) for row in group.rows for cell, entry in row.entries.items()]
    columns: dict[tuple[str, str], Metric] = {}
    for which in _TABLES:
        for _, _, entry in entries:
            for run in entry.counted_runs:
                for name, values in _read_table(run, which).items():
                    columns.setdefault((which, name), make_metric(name, values))
    if all(key == ("test", group.metric.name) for key in columns):
        return None
    has_cells = len(group.cells) > 1
    rows: list[list[object]] = [
        [label, *([cell] if has_cells else []), *(_average(entry, *key, metric) for key, metric in columns.items())]
        for label, cell, entry in entries
    ]
    head = [f"{which} {metric.name}{', %' if metric.is_share else ''}" for (which, _), metric in columns.items()]
    caption = f"{group.title}: all metrics, {group.describe_measure(MAIN)}"
    return make_table(caption, ["algorithm", *(["cell"] if has_cells else []), *head], rows)


def _read_table(run: Digest, which: str) -> Mapping[str, Any]:
    table = run.summary.get(_TABLES[which])
    return table if isinstance(table, dict) else {}


def _average(entry: Entry, which: str, name: str, metric: Metric) -> str:
    if entry.divergence:
        return entry.divergence
    tables = [_read_table(run, which).get(name) for run in entry.counted_runs]
    values = [metric.scale * table[MAIN] for table in tables if table]
    return metric.format(statistics.fmean(values)) if values else "–"
