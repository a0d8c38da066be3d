"""The data that the page's script draws: curves, diagnoses, participation and label mixes."""

from typing import Any

from fedcm.reports.digest import SYSTEM_COLUMNS, Digest, ParticipationCounts
from fedcm.reports.document import Document
from fedcm.reports.entry import Entry, average_curves
from fedcm.reports.figures.method_groups import METHOD_GROUPS, OTHER_METHODS, get_method_group
from fedcm.reports.groups import Group, describe_split
from fedcm.reports.html.client_table import list_client_histograms
from fedcm.reports.html.diagnosis_plots import list_agreement_plots, list_diagnosis_plots
from fedcm.reports.html.system_plots import list_step_histograms, list_system_plots
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
                "hidden": _list_hidden_labels(group, cell.name),
                "rows": [
                    {
                        "label": row.label,
                        "group": get_method_group(row.algorithm),
                        "decentralised": any(run.is_decentralised for run in row.entries[cell.name].runs),
                        **_make_curves(row.entries[cell.name]),
                    }
                    for row in group.rows
                    if cell.name in row.entries
                ],
            }
            for group in document.groups
            for cell in group.cells
        ],
        "quantities": list_quantities(document),
        "agreement": list_agreement_plots(document),
        "system": [*list_system_plots(document), *list_step_histograms(document)],
        "method_groups": [*METHOD_GROUPS, OTHER_METHODS],
        "diagnosis": list_diagnosis_plots(document),
        "participation": list_participations(document),
        "clients": list_client_histograms(document),
        "mixes": list_label_mixes(document),
    }


def list_quantities(document: Document) -> dict[str, dict[str, Any]]:
    """Return title and unit of the columns of evaluations besides test accuracy, test loss and training loss."""
    found: dict[str, dict[str, Any]] = {}
    for run in document.digests:
        tables = {"test": run.summary.get("metrics"), "validation": run.summary.get("validation")}
        for column in run.curve.scores:
            which, _, name = column.partition("_")
            traits = (run.summary.get(which) if which not in tables else (tables[which] or {}).get(name)) or {}
            found.setdefault(column, {"title": column.replace("_", " "), "share": traits.get("is_share") is True})
    return found


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


def _list_hidden_labels(group: Group, cell: str) -> list[str]:
    """Return the rows whose curves the page does not show at first."""
    main = {row.label for row in group.list_main_rows(cell)}
    return [row.label for row in group.rows if cell in row.entries and row.label not in main]


def _make_curves(entry: Entry) -> dict[str, Any]:
    average = average_curves([run.curve for run in entry.runs])
    own = {"consensus_distance", *SYSTEM_COLUMNS} - {"simulated_seconds"}  # drawn in pictures of their own
    runs = entry.runs if len(entry.runs) > 1 else ()
    return {
        "round": average.round,
        "mean": {name: _round_values(values) for name, values in average.mean.items() if name not in own},
        "deviation": {name: _round_values(values) for name, values in average.deviation.items() if name not in own},
        "runs": [
            {"name": run.name, **{key: column for key, column in run.curve.flatten().items() if key not in own}}
            for run in runs
        ],
    }


def _round_values(values: list[float | None]) -> list[float | None]:
    """Round to six digits, to keep the page small."""
    return [None if value is None else float(f"{value:.6g}") for value in values]
