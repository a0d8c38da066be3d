"""The data that the page's script draws: curves, diagnoses, participation and label mixes."""

from typing import Any

from fedcm.reports.digest import Digest, ParticipationCounts
from fedcm.reports.document import Document
from fedcm.reports.entry import Entry, average_curves
from fedcm.reports.groups import describe_split
from fedcm.reports.html.diagnosis_plots import list_diagnosis_plots
from fedcm.system.formatting import format_count


def make_page_data(document: Document) -> dict[str, Any]:
    """Return everything that the script draws, as JSON values."""
    return {
        "styles": {
            label: {name: value for name, value in style._asdict().items() if name != "line"}
            for label, style in document.styles.items()
        },
        "cells": [
            {
                "title": cell.name if len(document.groups) == 1 else f"{group.title}: {cell.name}",
                "metric": group.metric.column,
                "rows": [
                    {"label": row.label, **_make_curves(row.entries[cell.name])}
                    for row in group.rows
                    if cell.name in row.entries
                ],
            }
            for group in document.groups
            for cell in group.cells
        ],
        "diagnosis": list_diagnosis_plots(document),
        "participation": list_participations(document),
        "mixes": list_label_mixes(document),
    }


def list_participations(document: Document) -> list[dict[str, Any]]:
    """Return one histogram per kind of participation, averaged over seeds; algorithms draw the same cohorts."""
    by_title: dict[str, dict[int, tuple[Digest, ParticipationCounts]]] = {}
    finished = [run for run in document.digests if run.state in ("finished", "diverged")]
    for run in finished or document.digests:
        counts = run.participation
        if not counts.times:
            continue
        kind = " ".join(str(value) for value in run.experiment.get("participation", {}).values())
        population = f"{counts.population} clients" if counts.population is not None else "clients that took part"
        by_seed = by_title.setdefault(f"{population}, {kind}, {format_count(counts.rounds, 'round')}", {})
        by_seed.setdefault(run.seed, (run, counts))
    pictures = []
    for title, by_seed in by_title.items():
        means: dict[int, float] = {}
        for _, counts in by_seed.values():
            for times, clients in counts.times:
                means[times] = means.get(times, 0) + clients / len(by_seed)
        cohort = sum(counts.mean_cohort for _, counts in by_seed.values()) / len(by_seed)
        empty = sum(counts.empty_rounds for _, counts in by_seed.values()) / len(by_seed)
        seeds = "" if len(by_seed) == 1 else f", mean over {len(by_seed)} seeds"
        caption = f"{cohort:.3g} clients per round on average, {empty:.3g} rounds without clients{seeds}"
        times = [[k, round(means[k], 3)] for k in sorted(means)]
        pictures.append({"title": title, "times": times, "caption": caption})
    return pictures


def list_label_mixes(document: Document) -> list[dict[str, Any]]:
    """Return one label mix per kind of split, of the smallest seed."""
    pictures: dict[str, dict[str, Any]] = {}
    for run in sorted(document.digests, key=lambda run: run.seed):
        if run.mix is None:
            continue
        title = f"{run.experiment['data']['source']}, {describe_split(run)}, {run.mix.clients} clients"
        classes, distance = run.mix.spread.get("mean_classes", 0), run.mix.spread.get("mean_distance", 0)
        caption = (
            f"seed {run.seed}: {classes:.1f} of {run.mix.classes} classes per client on average; "
            f"mean distance to the label mix of all clients {distance:.3f} (0: equal, 1: disjoint)"
        )
        if len(run.mix.shown) < run.mix.clients:
            caption += f"; {len(run.mix.shown)} of {run.mix.clients} clients shown"
        pictures.setdefault(title, {"title": title, "caption": caption, "shown": run.mix.shown})
    return list(pictures.values())


def _make_curves(entry: Entry) -> dict[str, Any]:
    average = average_curves([run.curve for run in entry.runs])
    return {
        "round": average.round,
        "mean": {name: _round_values(values) for name, values in average.mean.items()},
        "deviation": {name: _round_values(values) for name, values in average.deviation.items()},
        "runs": [{"name": run.name, **run.curve.model_dump()} for run in entry.runs] if len(entry.runs) > 1 else [],
    }


def _round_values(values: list[float | None]) -> list[float | None]:
    """Round to six digits, to keep the page small."""
    return [None if value is None else float(f"{value:.6g}") for value in values]
