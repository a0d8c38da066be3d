"""Tables on the terminal that compare runs: one row per run, or one per algorithm and cell."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.cli.terminal.tables import print_table
from fedcm.reports.scores import (
    Scores,
    choose_summary_metric,
    describe_metrics,
    has_validation,
    list_best,
    list_client_headings,
    make_scores,
    name_mean_column,
)
from fedcm.reports.sweep import read_summaries
from fedcm.runs.summary import read_current_summary
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.formatting import format_bytes, format_duration


def print_sweep_results(tasks: Sequence[SweepTask]) -> None:
    """Print one row per algorithm and cell if the sweep has cells or several seeds, else one row per run."""
    has_labels = any(task.run.experiment.cell.labels for task in tasks)
    if has_labels or len({task.run.experiment.seed for task in tasks}) > 1:
        print_cells(tasks)
    else:
        print_comparison(read_summaries(tasks))


def print_comparison(summaries: Mapping[str, dict[str, Any]]) -> None:
    """Print one row per run, with the best mean in bold."""
    targets = sorted({target for summary in summaries.values() for target in summary.get("rounds_to_accuracy", {})})
    targets = [t for t in targets if any(s["rounds_to_accuracy"].get(t) for s in summaries.values())][-2:]
    metric = choose_summary_metric(summaries.values())
    scores = {name: make_scores([summary], metric) for name, summary in summaries.items()}
    mean, meaning = name_mean_column(scores.values())
    n = ["n"] if mean == "meanₙ" else []
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    unit, validated = metric.unit, ["validation"] if has_validation(scores.values()) else []
    over_clients = list_client_headings(scores.values())
    targets_shown = [f"to {float(t):.0%}" for t in targets]
    private = ["ε"] if any("privacy" in summary for summary in summaries.values()) else []
    for heading in (
        "last",
        mean,
        *n,
        "best",
        *validated,
        *over_clients,
        *targets_shown,
        *private,
        "down",
        "up",
        "time",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    best = list_best(scores)
    for name, summary in summaries.items():
        one = scores[name]
        table.add_row(
            escape(name),
            *(one.format("last", unit), one.divergence or one.format("mean_last", unit)),
            *[_list_rounds(one) for _ in n],
            one.format("best", unit),
            *[one.format_validation(unit) for _ in validated],
            *(one.format_clients(unit) if over_clients else []),
            *[str(summary["rounds_to_accuracy"].get(t) or "–") for t in targets],
            *[_format_epsilon(summary) for _ in private],
            _format_bytes_down(summary),
            format_bytes(summary.get("bytes_up", 0)),
            format_duration(summary.get("seconds", 0)),
            style="bold" if name in best else None,
        )
    print_table(table)
    reached = "; to x%: rounds until it was reached" if targets else ""
    direction = "" if metric.higher_is_better else " (lower is better)"
    title = f"{metric.short_title}{direction}"
    print(f"{title}: last, mean and best of the evaluations; {meaning}{reached}{_describe_validation(validated)}")


def print_cells(tasks: Sequence[SweepTask]) -> None:
    """Print one row per algorithm and cell: mean ± standard deviation over seeds, with the best of a cell in bold.

    The grid's axes and the swept settings have columns of their own.
    """
    rows: dict[tuple[tuple[str, ...], str], list[SweepTask]] = {}
    axes = list(dict.fromkeys(axis for task in tasks for axis in task.run.experiment.cell.labels))
    for task in tasks:
        experiment = task.run.experiment
        cell = tuple(experiment.cell.labels.get(axis, "–") for axis in axes)
        rows.setdefault((cell, get_algorithm_name(experiment.algorithm)), []).append(task)
    summaries = {
        key: [summary for task in group if (summary := read_current_summary(task.folder))]
        for key, group in rows.items()
    }
    scores = {}
    for cell in dict.fromkeys(cell for cell, _ in rows):
        in_cell = {key: of_group for key, of_group in summaries.items() if key[0] == cell}
        metric = choose_summary_metric(summary for of_group in in_cell.values() for summary in of_group)
        scores |= {key: make_scores(of_group, metric) for key, of_group in in_cell.items()}
    mean, meaning = name_mean_column(scores.values())
    n = ["n"] if mean == "meanₙ" else []
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    figures = {key: group[0].run.experiment.cell.published for key, group in rows.items()}
    published = ["published"] if any(figure is not None for figure in figures.values()) else []
    for axis in axes:
        numbers = all(_is_number(cell[axes.index(axis)]) for cell, _ in rows)
        table.add_column(escape(axis), justify="right" if numbers else "left", overflow="fold")
    table.add_column("algorithm", no_wrap=True)
    validated = ["validation"] if has_validation(scores.values()) else []
    over_clients = list_client_headings(scores.values())
    for heading in ("seeds", mean, *n, "last", "best", *validated, *over_clients, *published):
        table.add_column(heading, justify="right", no_wrap=True)
    for (cell, algorithm), group in rows.items():
        one = scores[cell, algorithm]
        best = list_best({key: score for key, score in scores.items() if key[0] == cell})
        figure = figures[cell, algorithm]
        table.add_row(
            *map(escape, cell),
            escape(algorithm),
            str(sum(task.outcome in ("finished", "diverged") for task in group)),
            one.divergence or one.format("mean_last"),
            *[_list_rounds(one) for _ in n],
            *[one.format(key) for key in ("last", "best")],
            *[one.format_validation() for _ in validated],
            *(one.format_clients() if over_clients else []),
            *(["–" if figure is None else f"{figure:.2f}"] if published else []),
            style="bold" if (cell, algorithm) in best else None,
        )
    print_table(table)
    about = f"{describe_metrics(scores.values())}; mean ± standard deviation over seeds; {meaning}; last; best"
    print(about + _describe_validation(validated))


def _describe_validation(validated: Sequence[str]) -> str:
    return "; validation: the mean on validation data; the best of them is bold" if validated else ""


def _format_bytes_down(summary: Mapping[str, Any]) -> str:
    """Format the bytes from the server; nodes without a server only have bytes to their neighbours."""
    down = summary.get("bytes_down", 0)
    return "–" if not down and summary.get("bytes_up") else format_bytes(down)


def _format_epsilon(summary: Mapping[str, Any]) -> str:
    return f"{summary['privacy']['epsilon']:.3g}" if "privacy" in summary else "∞"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _list_rounds(scores: Scores) -> str:
    return ", ".join(map(str, sorted(scores.list_averaged_rounds()))) or "–"
