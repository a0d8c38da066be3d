"""Tables for the terminal."""

import dataclasses
import inspect
import json
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcm.algorithm import messages
from fedcm.algorithms import ALGORITHMS
from fedcm.algorithms.lookup import algorithm_name
from fedcm.experiment import read
from fedcm.overrides import read_table
from fedcm.planning import Estimate
from fedcm.record import RunFolder
from fedcm.refusal import Refused
from fedcm.report.outcome import diverged_in, divergence
from fedcm.report.rounding import hundredths
from fedcm.report.series_progress import spoken
from fedcm.series import Task


def comparison_table(summaries: Mapping[str, dict[str, Any]]) -> None:
    """One row a run; the best mean accuracy in bold."""
    targets = sorted({target for summary in summaries.values() for target in summary.get("rounds_to_accuracy", {})})
    targets = [t for t in targets if any(s["rounds_to_accuracy"].get(t) for s in summaries.values())][-2:]
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for heading in ("last", "mean₁₀₀", "best", *[f"to {float(t):.0%}" for t in targets], "down", "up", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    lost = {name: divergence([_diverged_in(summary)]) for name, summary in summaries.items()}
    accuracies = {name: {} if lost[name] else s.get("accuracy") or {} for name, s in summaries.items()}
    means = {name: accuracy.get("mean_last_100", -1.0) for name, accuracy in accuracies.items()}
    for name, summary in summaries.items():
        last, mean, best = (_percent(accuracies[name].get(key)) for key in ("last", "mean_last_100", "best"))
        table.add_row(
            escape(name),
            *(last, lost[name] or mean, best),
            *[str(summary["rounds_to_accuracy"].get(t) or "–") for t in targets],
            _bytes(summary.get("bytes_down", 0)),
            _bytes(summary.get("bytes_up", 0)),
            f"{summary.get('seconds', 0):.1f} s",
            style="bold" if len(summaries) > 1 and means[name] == max(means.values()) >= 0 else None,
        )
    _print(table)
    print("accuracy: last, mean of those evaluated in the last 100 rounds, best; to x%: rounds until it was reached")


def series_table(tasks: Sequence[Task]) -> None:
    """One row for the seeds of an algorithm in a cell: mean ± standard deviation; the best of a cell in bold. A column
    each for the grid's axes and the settings that were swept."""
    rows: dict[tuple[tuple[str, ...], str], list[Task]] = {}
    axes = list(dict.fromkeys(axis for task in tasks for axis in task.run.experiment.cell.labels))
    for task in tasks:
        experiment = task.run.experiment
        cell = tuple(experiment.cell.labels.get(axis, "–") for axis in axes)
        rows.setdefault((cell, algorithm_name(experiment.algorithm)), []).append(task)
    means = {key: _over_seeds(group, "mean_last_100") for key, group in rows.items()}
    figures = {key: group[0].run.experiment.cell.published for key, group in rows.items()}
    published = ["published"] if any(figure is not None for figure in figures.values()) else []
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for axis in axes:
        numbers = all(_is_number(cell[axes.index(axis)]) for cell, _ in rows)
        table.add_column(escape(axis), justify="right" if numbers else "left", overflow="fold")
    table.add_column("algorithm", no_wrap=True)
    for heading in ("seeds", "mean₁₀₀", "last", "best", *published):
        table.add_column(heading, justify="right", no_wrap=True)
    for (cell, algorithm), group in rows.items():
        rivals = [mean[0] for (other, _), mean in means.items() if other == cell and mean]
        best = bool(means[cell, algorithm]) and means[cell, algorithm][0] == max(rivals) and len(rivals) > 1
        figure = figures[cell, algorithm]
        table.add_row(
            *map(escape, cell),
            escape(algorithm),
            str(sum(task.state in ("finished", "diverged") for task in group)),
            _lost(group) or _plus_minus(means[cell, algorithm]),
            *[_plus_minus(_over_seeds(group, key)) for key in ("last", "best")],
            *(["–" if figure is None else f"{figure:.2f}"] if published else []),
            style="bold" if best else None,
        )
    _print(table)
    print("accuracy in percent, mean ± standard deviation over seeds: of the last 100 rounds' evaluations, last, best")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _over_seeds(tasks: Sequence[Task], key: str) -> tuple[float, ...]:
    """(mean,) of one seed, (mean, deviation) of several, () of none, or where one diverged."""
    summaries = [] if _lost(tasks) else _summaries(tasks)
    values = [100 * summary["accuracy"][key] for summary in summaries if summary.get("accuracy")]
    if len(values) < 2:
        return tuple(values)
    return statistics.mean(values), statistics.stdev(values)


def _lost(tasks: Sequence[Task]) -> str:
    return divergence([_diverged_in(summary) for summary in _summaries(tasks)])


def _summaries(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    return [summary for task in tasks if (summary := task.folder.read_summary())]


def _diverged_in(summary: Mapping[str, Any]) -> int | None:
    return diverged_in(summary.get("outcome", ""), summary.get("rounds", 0))


def _plus_minus(value: tuple[float, ...]) -> str:
    return " ± ".join(map(hundredths, value)) or "–"


def plan_table(estimates: Sequence[Estimate], cores: int) -> None:
    """One row a run, and the sum."""
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), show_footer=True)
    total, left = sum(e.seconds for e in estimates), sum(e.task.rounds - e.task.done for e in estimates)
    table.add_column("run", overflow="fold", footer=f"{len(estimates)} runs")
    for heading, footer in (("state", ""), ("rounds", str(sum(e.task.rounds for e in estimates))), ("left", str(left))):
        table.add_column(heading, justify="right", no_wrap=True, footer=footer)
    table.add_column("a round", justify="right", no_wrap=True)
    table.add_column("in all", justify="right", no_wrap=True, footer=spoken(total))
    for e in estimates:
        a_round = f"{e.seconds_a_round:.2f} s" if not e.task.over else "–"
        left_here = str(e.task.rounds - e.task.done)
        table.add_row(escape(e.task.run.name), e.task.state, str(e.task.rounds), left_here, a_round, spoken(e.seconds))
    _print(table)
    print(f"times on one core, by a probe of a few steps; on the {cores} in use here about {spoken(total / cores)}")


def state_of(folder: RunFolder, runs_dir: Path) -> dict[str, Any]:
    """One run in a few words; a damaged one is told as such."""
    state: dict[str, Any] = dict.fromkeys(("algorithm", "settings", "done", "rounds", "last_accuracy", "best_accuracy"))
    state |= {"name": str(folder.path.relative_to(runs_dir)), "state": "damaged", "path": str(folder.path)}
    try:
        experiment = read(read_table(folder.experiment))
        metrics = folder.read_metrics()
    except (Refused, OSError):
        return state
    summary = folder.read_summary() or {}
    evaluated = [line["test_accuracy"] for line in metrics if line.get("test_accuracy") is not None]
    return state | {
        "algorithm": algorithm_name(experiment.algorithm),
        "settings": dataclasses.asdict(experiment.algorithm),
        "state": summary.get("outcome") or ("running" if folder.is_locked() else "stopped"),
        "done": len(metrics),
        "rounds": experiment.rounds,
        "last_accuracy": evaluated[-1] if evaluated else None,
        "best_accuracy": max(evaluated) if evaluated else None,
    }


def runs_table(states: Sequence[dict[str, Any]]) -> None:
    table = Table(box=SIMPLE, pad_edge=False)
    for heading in ("run", "algorithm", "settings", "state", "rounds", "last", "best"):
        table.add_column(heading, overflow="fold")
    colours = {"finished": "green", "running": "blue", "stopped": "yellow", "diverged": "red", "damaged": "red"}
    for state in states:
        lost = divergence([diverged_in(state["state"], state["done"] or 0)])
        table.add_row(
            escape(state["name"]),
            escape(state["algorithm"] or "–"),
            escape("\n".join(_setting(name, value) for name, value in (state["settings"] or {}).items()) or "–"),
            f"[{colours.get(state['state'], 'default')}]{lost or state['state']}[/]",
            "–" if state["done"] is None else f"{state['done']}/{state['rounds']}",
            *(_percent(None if lost else state[key]) for key in ("last_accuracy", "best_accuracy")),
        )
    _print(table)
    for state in states:
        if state["state"] == "stopped":
            print(f"go on: fedcm resume {shlex.quote(state['path'])}")


def algorithms_table() -> None:
    table = Table(box=SIMPLE, pad_edge=False)
    for heading in ("algorithm", "down", "sends down", "clients keep", "up", "reports up", "settings", "paper"):
        table.add_column(heading, overflow="fold")
    for name, kind in ALGORITHMS.items():
        types = messages(kind)
        sent, kept, reported = (t.__annotations__ for t in (types.sent, types.kept, types.reported))
        settings = "\n".join(_setting(field.name, field.default) for field in dataclasses.fields(kind))
        table.add_row(
            name,
            str(len(sent)),
            "\n".join(sent),
            "\n".join(kept) or "–",
            str(len(reported)),
            "\n".join(reported),
            settings or "–",
            kind.paper,
        )
    _print(table)

    print("down, up: vectors of the model's size sent to and from each client that takes part in a round")


def models_table() -> None:
    from fedcm.models import MODELS

    table = Table("model", "what it is", "options", box=SIMPLE, pad_edge=False)
    for name, factory in MODELS.items():
        about = inspect.getdoc(factory) or (inspect.getdoc(inspect.getmodule(factory)) or "").split("\n")[0]
        options = [p for p in inspect.signature(factory).parameters.values() if p.default is not p.empty]
        table.add_row(name, about, ", ".join(_setting(p.name, p.default) for p in options) or "–")
    _print(table)
    print('Your own: model.name = "package.module:factory"; its keywords are the model\'s options.')


def split_table(summary: Mapping[str, float]) -> None:
    table = Table(show_header=False)
    rows = {
        "clients": f"{summary['clients']:.0f}",
        "examples": f"{summary['examples']:.0f} dealt out, {summary['unused_examples']:.0f} unused",
        "examples a client": f"{summary['least_examples']:.0f} to {summary['most_examples']:.0f}",
        "classes a client": f"{summary['mean_classes']:.1f} on average",
        "distance from the whole's label mix": f"{summary['mean_distance']:.3f} (0 = the same, 1 = apart)",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    _print(table)


def _setting(name: str, value: Any) -> str:
    """As it would stand in TOML, which writes these values as JSON does."""
    return f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"


def _print(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 160).print(table)  # a file or a pipe has no width of its own


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{hundredths(100 * value)}%"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
