"""What the page's script draws, as JSON: curves, participation and label mixes."""

from typing import Any

from fedcm.reports.averages import averaged
from fedcm.reports.diagnoses import diagnoses
from fedcm.reports.digest import Digest, Participation
from fedcm.reports.entry import Entry
from fedcm.reports.story import Story
from fedcm.reports.words import several


def page_data(story: Story) -> dict[str, Any]:
    return {
        "looks": {
            label: {k: v for k, v in look._asdict().items() if k != "line"} for label, look in story.looks.items()
        },
        "cells": [
            {
                "title": cell.name if len(story.groups) == 1 else f"{group.title}: {cell.name}",
                "metric": group.metric.column,
                "rows": [
                    {"label": row.label, **_curves(row.entries[cell.name])}
                    for row in group.rows
                    if cell.name in row.entries
                ],
            }
            for group in story.groups
            for cell in group.cells
        ],
        "diagnosis": diagnoses(story),
        "participation": participations(story),
        "mixes": mixes(story),
    }


def _curves(entry: Entry) -> dict[str, Any]:
    average = averaged([run.curve for run in entry.runs])
    return {
        "round": average.round,
        "mean": {name: _short(values) for name, values in average.mean.items()},
        "deviation": {name: _short(values) for name, values in average.deviation.items()},
        "runs": [{"name": run.name, **run.curve.model_dump()} for run in entry.runs] if len(entry.runs) > 1 else [],
    }


def _short(values: list[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.6g}") for value in values]


def participations(story: Story) -> list[dict[str, Any]]:
    """One for each way of taking part; seeds are averaged, algorithms draw the same cohorts."""
    found: dict[str, dict[int, tuple[Digest, Participation]]] = {}
    over = [run for run in story.digests if run.state in ("finished", "diverged")]
    for run in over or story.digests:
        seen = run.participation
        if not seen.times:
            continue
        chosen = run.experiment.get("participation", {})
        how = " ".join(str(value) for value in chosen.values())
        population = f"{seen.population} clients" if seen.population is not None else "clients that took part"
        by_seed = found.setdefault(f"{population}, {how}, {several(seen.rounds, 'round')}", {})
        by_seed.setdefault(run.seed, (run, seen))
    result = []
    for title, by_seed in found.items():
        counts: dict[int, float] = {}
        for _, seen in by_seed.values():
            for times, clients in seen.times:
                counts[times] = counts.get(times, 0) + clients / len(by_seed)
        cohort = sum(seen.mean_cohort for _, seen in by_seed.values()) / len(by_seed)
        empty = sum(seen.empty_rounds for _, seen in by_seed.values()) / len(by_seed)
        seeds = "" if len(by_seed) == 1 else f", mean over {len(by_seed)} seeds"
        said = f"{cohort:.3g} clients a round on average, {empty:.3g} rounds without any{seeds}"
        result.append({"title": title, "times": [[k, round(counts[k], 3)] for k in sorted(counts)], "said": said})
    return result


def mixes(story: Story) -> list[dict[str, Any]]:
    """One for each way of splitting; of several seeds the first."""
    found: dict[str, dict[str, Any]] = {}
    for run in sorted(story.digests, key=lambda run: run.seed):
        if run.mix is None:
            continue
        split = run.experiment["split"]
        words = " ".join([split["kind"], *(str(split[key]) for key in ("concentration", "per_client") if key in split)])
        title = f"{run.experiment['data']['source']}, {words}, {run.mix.clients} clients"
        spread = run.mix.spread
        said = (
            f"seed {run.seed}: {spread.get('mean_classes', 0):.1f} of {run.mix.classes} classes a client on average; "
            f"distance from the whole's label mix {spread.get('mean_distance', 0):.3f} (0 = the same, 1 = apart)"
        )
        few = len(run.mix.shown) < run.mix.clients
        shown = f"; {len(run.mix.shown)} of {run.mix.clients} clients drawn" if few else ""
        found.setdefault(title, {"title": title, "said": said + shown, "shown": run.mix.shown})
    return list(found.values())
