"""Results over clients: their distribution as a table, and histograms."""

import statistics
from typing import Any

import numpy as np

from fedcm.reports.digest import Digest
from fedcm.reports.document import Document
from fedcm.reports.entry import Entry
from fedcm.reports.groups import Group
from fedcm.reports.html.markup import Html, make_table
from fedcm.reports.scores import CLIENT_COLUMNS
from fedcm.reports.sheet import Sheet

_BINS = 20
_HEADINGS = ("mean", "standard deviation", "worst 10 %", "worst")  # of CLIENT_COLUMNS


def render_client_table(group: Group) -> Html | None:
    """Return the table of a group: mean, standard deviation, worst tenth and worst over clients; None without any."""
    rows: list[list[object]] = [[*row] for row in _list_rows(group)]
    return make_table(_describe_table(group), [*_list_headings(group)], rows) if rows else None


def make_client_sheet(group: Group, name: str) -> Sheet | None:
    """Return the table as a sheet; None if no run evaluated its clients."""
    head, rows = _list_headings(group), _list_rows(group)
    texts = len(head) - len(_HEADINGS)
    return Sheet(name, _describe_table(group), tuple(head), tuple(map(tuple, rows)), texts=texts) if rows else None


def _list_headings(group: Group) -> list[str]:
    return ["algorithm", *(["cell"] if len(group.cells) > 1 else []), "model", *_HEADINGS]


def _list_rows(group: Group) -> list[list[str]]:
    rows = []
    for row in group.rows:
        for cell, entry in row.entries.items():
            for kind in ("clients", "personal"):
                if numbers := average_over_clients(entry, kind):
                    where = [cell] if len(group.cells) > 1 else []
                    texts = ["–" if number is None else group.metric.format(number) for number in numbers]
                    rows.append([row.label, *where, _name_model(entry.runs[0], kind), *texts])
    return rows


def _describe_table(group: Group) -> str:
    caption = f"{group.title}: {group.metric.name} over clients on their own test data, in the last evaluation"
    return caption + (", in %" if group.metric.is_share else "")


def list_client_histograms(document: Document) -> list[dict[str, Any]]:
    """Return a histogram over clients for each run that evaluated them, first the global model and then their own."""
    pictures = []
    for run in document.digests:
        results = run.client_results
        for kind, values in (("clients", results.values), ("personal", results.personal)) if results else ():
            known = [value for value in values if value is not None]
            if results is not None and known:
                pictures.append(_make_histogram(run, results.metric, known, _name_model(run, kind)))
    return pictures


def _name_model(run: Digest, kind: str) -> str:
    """Name the model that clients were evaluated with."""
    if kind == "personal":
        return "after own steps"
    return "with personal layers" if run.experiment["model"].get("personal") else "global model"


def _make_histogram(run: Digest, metric: str, values: list[float], words: str) -> dict[str, Any]:
    share = all(0 <= value <= 1 for value in values)
    counts, edges = np.histogram(values, _BINS, (0.0, 1.0) if share else None)
    caption = f"{metric} of {len(values)} clients, {words}: mean {statistics.fmean(values):.4g}, "
    caption += f"from {min(values):.4g} to {max(values):.4g}"
    bins = [
        [float(f"{(low + high) / 2:.6g}"), int(count)]
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    return {
        "title": run.name,
        "caption": caption,
        "model": words,
        "metric": metric,
        "counted": "clients",
        "bins": bins,
        "width": float(edges[1] - edges[0]),
    }


def average_over_clients(entry: Entry, kind: str = "clients") -> list[float | None] | None:
    """Return mean, deviation, worst tenth and worst over clients as they are shown, each as a mean over seeds.

    Args:
        entry: The runs.
        kind: "clients", or "personal" for the models after each client's own steps.

    Returns:
        The numbers, in the order of `CLIENT_COLUMNS`; None if no run has any, or one diverged.
    """
    tables = [run.summary[kind] for run in entry.counted_runs if isinstance(run.summary.get(kind), dict)]
    alike = [table for table in tables if table.get("metric") == entry.metric.name]
    if not alike or entry.divergence:
        return None
    known = [[table[key] for table in alike if table.get(key) is not None] for key in CLIENT_COLUMNS]
    return [entry.metric.scale * statistics.fmean(values) if values else None for values in known]
