"""Tables on the terminal: plans of sweeps, algorithms, models, experiments, splits."""

import dataclasses
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcm.algorithms import GROUPS
from fedcm.algorithms.registry import find_algorithm
from fedcm.config.bundled import find_experiments_folder, has_grid, list_experiments
from fedcm.core.algorithm import get_message_types
from fedcm.core.contract import RoundCosts, measure_costs
from fedcm.errors import UserError
from fedcm.sweeps.estimate import Estimate
from fedcm.system.formatting import format_count, format_estimate


def print_plan(estimates: Sequence[Estimate], cores: int) -> None:
    """Print the estimated time of each run of a sweep, and the sum."""
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), show_footer=True)
    total, left = sum(e.seconds for e in estimates), sum(e.task.rounds - e.task.rounds_done for e in estimates)
    table.add_column("run", overflow="fold", footer=format_count(len(estimates), "run"))
    for heading, footer in (("state", ""), ("rounds", str(sum(e.task.rounds for e in estimates))), ("left", str(left))):
        table.add_column(heading, justify="right", no_wrap=True, footer=footer)
    table.add_column("per round", justify="right", no_wrap=True)
    table.add_column("total", justify="right", no_wrap=True, footer=format_estimate(total))
    for e in estimates:
        per_round = f"{e.seconds_per_round:.2f} s" if not e.task.has_ended else "–"
        left_here = str(e.task.rounds - e.task.rounds_done)
        table.add_row(
            escape(e.task.run.name),
            e.task.outcome,
            str(e.task.rounds),
            left_here,
            per_round,
            format_estimate(e.seconds),
        )
    print_table(table)
    together = format_estimate(total / cores)
    print(f"times on one core, estimated from a few steps; about {together} on {format_count(cores, 'core')}")


def print_algorithms() -> None:
    """Print the bundled algorithms in their groups: costs of a round, settings and papers."""
    table = Table(box=SIMPLE, pad_edge=False)
    for heading in ("algorithm", "down", "up", "state", "extra gradients", "settings", "paper"):
        right = heading in ("down", "up", "state")
        table.add_column(heading, overflow="fold", justify="right" if right else "left")
    for group, kinds in GROUPS.items():
        table.add_row(f"[bold]{group}[/bold]")
        for name, kind in kinds.items():
            algorithm = kind()
            costs = measure_costs(algorithm)
            numbers = (str(costs.down), str(costs.up), str(costs.client_state or "–"))
            settings = "\n".join(_list_settings(kind))
            table.add_row(f"  {name}", *numbers, describe_gradient_work(costs), settings or "–", kind.paper)
    print_table(table)
    print(
        "down, up, state: vectors of the model's size that a client receives, sends and keeps between rounds; for one\n"
        "algorithm with its equations: `fedcm algorithms NAME`"
    )


def describe_gradient_work(costs: RoundCosts) -> str:
    """Describe the gradients of a client that FedAvg does not compute; "–" if there are none."""
    parts = []
    if costs.gradients_per_step > 1:
        parts.append(f"{costs.gradients_per_step} per step")
    if costs.full_gradients:
        parts.append(format_count(costs.full_gradients, "full pass", "full passes"))
    if costs.exchanges > 1:
        parts.append(f"in {costs.exchanges} exchanges")
    return ", ".join(parts) or "–"


def print_algorithm(name: str) -> None:
    """Print one algorithm: its equations, messages, settings, costs and paper."""
    kind = find_algorithm(name)
    module = inspect.getmodule(kind)
    print(inspect.cleandoc(module.__doc__ or "" if module else ""))
    types = get_message_types(kind)
    try:
        costs = measure_costs(kind())
    except TypeError as error:
        raise UserError(f"every setting of {name!r} must have a default to measure its costs: {error}") from None
    table = Table(show_header=False, box=SIMPLE, pad_edge=False)
    for heading, message in (
        ("server state", types.server),
        ("broadcast", types.broadcast),
        ("client state", types.client_state),
        ("report", types.report),
    ):
        table.add_row(heading, ", ".join(getattr(message, "_fields", ())) or "–")
    table.add_row("down, up, state", f"{costs.down}, {costs.up}, {costs.client_state} vectors of the model's size")
    table.add_row("extra gradients", describe_gradient_work(costs))
    if kind.needs_all_clients:
        table.add_row("participation", "every client in every round")
    table.add_row("settings", "\n".join(_list_settings(kind)) or "–")
    print_table(table)


def _list_settings(kind: type[Any]) -> list[str]:
    return [format_toml_setting(field.name, field.default) for field in dataclasses.fields(kind)]


def print_models() -> None:
    """Print the bundled models and their options."""
    from fedcm.config.sections import RESERVED_MODEL_KEYS
    from fedcm.models import MODELS

    table = Table("model", "description", "options", box=SIMPLE, pad_edge=False)
    for name, factory in MODELS.items():
        about = inspect.getdoc(factory) or (inspect.getdoc(inspect.getmodule(factory)) or "").split("\n")[0]
        options = [p for p in inspect.signature(factory).parameters.values() if p.default is not p.empty]
        table.add_row(name, about, ", ".join(format_toml_setting(p.name, p.default) for p in options) or "–")
    print_table(table)
    print('For your own model: model.name = "package.module:factory"; its keyword arguments are the options.')
    print(f"Every model also has the settings {', '.join(RESERVED_MODEL_KEYS[1:])}; see docs/experiments.md.")


def print_experiments() -> None:
    """Print the bundled experiments: name, what each one is, and the command that runs it."""
    table = Table("experiment", "description", "run it with", box=SIMPLE, pad_edge=False)
    for experiment in list_experiments():
        command = "compare" if has_grid(experiment.path) else "run"
        table.add_row(experiment.name, experiment.title, f"fedcm {command} {experiment.name}")
    print_table(table)
    print(f"The files are in {find_experiments_folder()}; copy one to change it.")


def print_split(summary: Mapping[str, float]) -> None:
    """Print how a split distributes the examples."""
    table = Table(show_header=False)
    rows = {
        "clients": f"{summary['clients']:.0f}",
        "examples": f"{summary['examples']:.0f} distributed, {summary['unused_examples']:.0f} unused",
        "examples per client": f"{summary['least_examples']:.0f} to {summary['most_examples']:.0f}",
        "classes per client": f"{summary['mean_classes']:.1f} on average",
        "distance from the overall label mix": f"{summary['mean_distance']:.3f} (0 = equal, 1 = disjoint)",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    print_table(table)


def format_toml_setting(name: str, value: Any) -> str:
    """Format a setting as in TOML, which writes these values like JSON."""
    return f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal."""
    Console(width=None if sys.stdout.isatty() else 160).print(table)  # files and pipes have no width
