"""The table of `fedcm runs`."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from fedcm.cli.terminal.tables import format_toml_setting, print_table
from fedcm.reports.metric import ACCURACY, LOSS, describe_divergence, find_divergence_round, make_metric
from fedcm.system.formatting import format_count

_COLOURS = {"finished": "green", "running": "blue", "stopped": "yellow", "diverged": "red", "damaged": "red"}
_HEADINGS = ("run", "started", "data", "algorithm", "seed", "settings", "state", "rounds", "last", "best")


def print_runs(runs: Sequence[dict[str, Any]]) -> None:
    """Print one row per run, then how to resume the stopped ones and what is wrong with the damaged ones.

    Args:
        runs: The result of `fedcm.runs.overview.make_overview`.
    """
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    validated = ["validation"] if any((run["headline"] or {}).get("validation") is not None for run in runs) else []
    for heading in (*_HEADINGS, *validated):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("seed", "rounds"))
    for run in runs:
        lost = describe_divergence([find_divergence_round(run["state"], run["done"] or 0)])
        table.add_row(
            escape(run["name"]),
            _format_date(run["started"]),
            escape(_format_source(run["data"])),
            escape(run["algorithm"] or "–"),
            "–" if run["seed"] is None else str(run["seed"]),
            escape("\n".join(_list_settings(run)) or "–"),
            f"[{_COLOURS.get(run['state'], 'default')}]{lost or _format_state(run)}[/]",
            "–" if run["done"] is None else f"{run['done']}/{run['rounds']}",
            *("–" if lost else _format_score(run, which) for which in ("last", "best", *validated)),
        )
    print_table(table)
    if any((run["headline"] or {}).get("last") is None and run["last_test_loss"] is not None for run in runs):
        print("last, best: the first metric on the test data, or the test loss if a run has no metric")
    for run in runs:
        if run["state"] == "stopped":
            print(f"resume: fedcm resume {shlex.quote(run['path'])}")
        elif run["damage"]:
            print(f"damaged: {run['name']}: {' '.join(run['damage'].split())}")
    if unverified := sum(run["evidence"] == "no manifest" for run in runs):
        print(f"no manifest: {format_count(unverified, 'finished run')} of an older version cannot be verified")


def _format_state(run: Mapping[str, Any]) -> str:
    return f"{run['state']} early" if run["stopped_early"] else run["state"]


def _format_date(started: str | None) -> str:
    return "–" if started is None else started[:16].replace("T", " ")


def _format_source(source: str | None) -> str:
    """A known name or an import path as it is; of a file only the last part of its path."""
    return "–" if source is None else Path(source).name


def _list_settings(run: Mapping[str, Any]) -> list[str]:
    """The algorithm's settings, and other settings that differ from runs of the same experiment."""
    own = [format_toml_setting(name, value) for name, value in (run["settings"] or {}).items()]
    others = {path: value for path, value in (run["differs"] or {}).items() if not path.startswith("algorithm.")}
    return [*own, *(format_toml_setting(path, value) for path, value in others.items())]


def _format_score(run: Mapping[str, Any], which: str) -> str:
    """The headline metric, or the test loss if the run has none; accuracies without their name."""
    headline = run["headline"] or {}
    if (value := headline.get(which)) is not None:
        metric = make_metric(headline["name"], headline, over_clients=headline["over_clients"])
        text = f"{metric.format(metric.scale * value)}{metric.unit}"
        return text if metric == ACCURACY else f"{metric.title.removeprefix('test ')} {text}"
    loss = run[f"{which}_test_loss"] if which in ("last", "best") else None
    return "–" if loss is None else f"loss {LOSS.format(loss)}"
