"""Tables for the terminal that compare runs: one row per run, or one for the seeds of an algorithm in a cell."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from fedcm.algorithms.registry import algorithm_name
from fedcm.cli.terminal.tables import print_table
from fedcm.reports.metric import ACCURACY
from fedcm.reports.scores import (
    Scores,
    describe_metrics,
    list_best,
    metric_of,
    name_mean,
    read_scores_of,
    read_summary,
)
from fedcm.reports.words import amount
from fedcm.sweeps.run_parallel import SweepTask


def comparison_table(summaries: Mapping[str, dict[str, Any]]) -> None:
    """One row per run; the best mean in bold."""
    targets = sorted({target for summary in summaries.values() for target in summary.get("rounds_to_accuracy", {})})
    targets = [t for t in targets if any(s["rounds_to_accuracy"].get(t) for s in summaries.values())][-2:]
    metric = metric_of(summaries.values())
    scores = {name: read_scores_of([summary], metric) for name, summary in summaries.items()}
    mean, meaning = name_mean(scores.values())
    n = ["n"] if mean == "meanₙ" else []
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for heading in ("last", mean, *n, "best", *[f"to {float(t):.0%}" for t in targets], "down", "up", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = list_best(scores)
    unit = "%" if metric is ACCURACY else ""
    for name, summary in summaries.items():
        one = scores[name]
        table.add_row(
            escape(name),
            *(one.write("last", unit), one.lost or one.write("mean_last", unit)),
            *[_list_rounds(one) for _ in n],
            one.write("best", unit),
            *[str(summary["rounds_to_accuracy"].get(t) or "–") for t in targets],
            amount(summary.get("bytes_down", 0)),
            amount(summary.get("bytes_up", 0)),
            f"{summary.get('seconds', 0):.1f} s",
            style="bold" if name in best else None,
        )
    print_table(table)
    reached = "; to x%: rounds until it was reached" if targets else ""
    title = "accuracy" if metric is ACCURACY else "test loss (lower is better)"
    print(f"{title}: last, mean and best of the evaluations; {meaning}{reached}")


def series_table(tasks: Sequence[SweepTask]) -> None:
    """One row for the seeds of an algorithm in a cell: mean ± standard deviation; the best of a cell in bold. A column
    each for the grid's axes and the settings that were swept."""
    rows: dict[tuple[tuple[str, ...], str], list[SweepTask]] = {}
    axes = list(dict.fromkeys(axis for task in tasks for axis in task.run.experiment.cell.labels))
    for task in tasks:
        experiment = task.run.experiment
        cell = tuple(experiment.cell.labels.get(axis, "–") for axis in axes)
        rows.setdefault((cell, algorithm_name(experiment.algorithm)), []).append(task)
    summaries = {key: _summaries(group) for key, group in rows.items()}
    scores = {}
    for cell in dict.fromkeys(cell for cell, _ in rows):
        there = {key: found for key, found in summaries.items() if key[0] == cell}
        metric = metric_of(summary for found in there.values() for summary in found)
        scores |= {key: read_scores_of(found, metric) for key, found in there.items()}
    mean, meaning = name_mean(scores.values())
    n = ["n"] if mean == "meanₙ" else []
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    figures = {key: group[0].run.experiment.cell.published for key, group in rows.items()}
    published = ["published"] if any(figure is not None for figure in figures.values()) else []
    for axis in axes:
        numbers = all(_is_number(cell[axes.index(axis)]) for cell, _ in rows)
        table.add_column(escape(axis), justify="right" if numbers else "left", overflow="fold")
    table.add_column("algorithm", no_wrap=True)
    for heading in ("seeds", mean, *n, "last", "best", *published):
        table.add_column(heading, justify="right", no_wrap=True)
    for (cell, algorithm), group in rows.items():
        one = scores[cell, algorithm]
        best = list_best({key: found for key, found in scores.items() if key[0] == cell})
        figure = figures[cell, algorithm]
        table.add_row(
            *map(escape, cell),
            escape(algorithm),
            str(sum(task.state in ("finished", "diverged") for task in group)),
            one.lost or one.write("mean_last"),
            *[_list_rounds(one) for _ in n],
            *[one.write(key) for key in ("last", "best")],
            *(["–" if figure is None else f"{figure:.2f}"] if published else []),
            style="bold" if (cell, algorithm) in best else None,
        )
    print_table(table)
    print(f"{describe_metrics(scores.values())}; mean ± standard deviation over seeds; {meaning}; last; best")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _list_rounds(scores: Scores) -> str:
    return ", ".join(map(str, sorted(scores.averaged_rounds()))) or "–"


def _summaries(tasks: Sequence[SweepTask]) -> list[dict[str, Any]]:
    return [summary for task in tasks if (summary := read_summary(task.folder))]
