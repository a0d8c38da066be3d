"""Tables for the terminal."""

import dataclasses
import inspect
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcm.algorithms import ALGORITHMS
from fedcm.algorithms.registry import algorithm_name
from fedcm.cli.terminal.sweep_progress import spoken
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.core.algorithm import messages
from fedcm.errors import UserError
from fedcm.reports.metric import ACCURACY, METRICS
from fedcm.reports.outcome import diverged_in, divergence
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.estimate import Estimate


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
    print_table(table)
    print(f"times on one core, by a probe of a few steps; on the {cores} in use here about {spoken(total / cores)}")


def state_of(folder: RunFolder, runs_dir: Path) -> dict[str, Any]:
    """One run in a few words; a damaged one is told as such."""
    figures = [f"{which}_{metric}" for metric in ("accuracy", "test_loss") for which in ("last", "best")]
    state: dict[str, Any] = dict.fromkeys(("algorithm", "settings", "done", "rounds", *figures))
    state |= {"name": str(folder.path.relative_to(runs_dir)), "state": "damaged", "path": str(folder.path)}
    try:
        experiment = read_experiment(read_table(folder.experiment))
        metrics = folder.read_metrics()
    except (UserError, OSError):
        return state
    summary = folder.read_summary() or {}
    accuracies, losses = ([line[m.column] for line in metrics if line.get(m.column) is not None] for m in METRICS)
    return state | {
        "algorithm": algorithm_name(experiment.algorithm),
        "settings": dataclasses.asdict(experiment.algorithm),
        "state": summary.get("outcome") or ("running" if folder.is_locked() else "stopped"),
        "done": len(metrics),
        "rounds": experiment.rounds,
        "last_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies) if accuracies else None,
        "last_test_loss": losses[-1] if losses else None,
        "best_test_loss": min(losses) if losses else None,
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
            *("–" if lost else _write_figure(state, which) for which in ("last", "best")),
        )
    print_table(table)
    if any(state["last_accuracy"] is None and state["last_test_loss"] is not None for state in states):
        print("last, best: the test accuracy, or the test loss of a run that has none")
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
    print_table(table)

    print("down, up: vectors of the model's size sent to and from each client that takes part in a round")


def models_table() -> None:
    from fedcm.models import MODELS

    table = Table("model", "what it is", "options", box=SIMPLE, pad_edge=False)
    for name, factory in MODELS.items():
        about = inspect.getdoc(factory) or (inspect.getdoc(inspect.getmodule(factory)) or "").split("\n")[0]
        options = [p for p in inspect.signature(factory).parameters.values() if p.default is not p.empty]
        table.add_row(name, about, ", ".join(_setting(p.name, p.default) for p in options) or "–")
    print_table(table)
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
    print_table(table)


def _setting(name: str, value: Any) -> str:
    """As it would stand in TOML, which writes these values as JSON does."""
    return f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"


def print_table(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 160).print(table)  # a file or a pipe has no width of its own


def _write_figure(state: Mapping[str, Any], which: str) -> str:
    """The accuracy; of a run without one the test loss."""
    for metric, key in zip(METRICS, ("accuracy", "test_loss"), strict=True):
        if (value := state[f"{which}_{key}"]) is not None:
            text = metric.write(metric.scale * value)
            return f"{text}%" if metric is ACCURACY else f"loss {text}"
    return "–"
