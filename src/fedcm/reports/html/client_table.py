"""Results over clients: their distribution as a table, and histograms."""

import statistics
from typing import Any

import numpy as np

from fedcm.reports.digest import Digest
from fedcm.reports.document import Document
from fedcm.reports.entry import Entry
from fedcm.reports.groups import Group
from fedcm.reports.html.markup import Html, make_table
from fedcm.reports.metric import Metric
from fedcm.reports.scores import CLIENT_COLUMNS

_BINS = 20


def render_client_table(group: Group) -> Html | None:
    """Return the table of a group: mean, standard deviation, worst tenth and worst over clients; None without any."""
    rows: list[list[object]] = []
    for row in group.rows:
        for cell, entry in row.entries.items():
            for kind in ("clients", "personal"):
                numbers = _average(entry, kind, group.metric)
                if numbers is not None:
                    where = [cell] if len(group.cells) > 1 else []
                    rows.append([row.label, *where, _name_model(entry.runs[0], kind), *numbers])
    if not rows:
        return None
    head: list[object] = ["algorithm", *(["cell"] if len(group.cells) > 1 else []), "model"]
    head += ["mean", "standard deviation", "worst 10 %", "worst"]
    caption = f"{group.title}: {group.metric.name} over clients on their own test data, in the last evaluation"
    return make_table(caption + (", in %" if group.metric.is_share else ""), head, rows)


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
        "bins": bins,
        "width": float(edges[1] - edges[0]),
    }


def _average(entry: Entry, kind: str, metric: Metric) -> list[str] | None:
    tables = [run.summary[kind] for run in entry.counted_runs if isinstance(run.summary.get(kind), dict)]
    alike = [table for table in tables if table.get("metric") == metric.name]
    if not alike or entry.divergence:
        return None
    columns = [[metric.scale * table[key] for table in alike if table.get(key) is not None] for key in CLIENT_COLUMNS]
    return [metric.format(statistics.fmean(values)) if values else "–" for values in columns]
