"""The curves of a table as still pictures: a panel a cell, the mean over seeds within one standard deviation."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcm.reports.averages import averaged
from fedcm.reports.figures.looks import Look
from fedcm.reports.figures.style import figure
from fedcm.reports.groups import Group


def draw_group(group: Group, looks: Mapping[str, Look], folder: Path, name: str) -> list[Path]:
    """`NAME-accuracy`, or `NAME-test-loss` where that is what runs are compared by, and `NAME-loss`, each as PNG and
    PDF."""
    metric = group.metric
    quantities = {
        metric.file_name: (metric.column, metric.axis, metric.scale),
        "loss": ("train_loss", "training loss, mean since the last evaluation", 1.0),
    }
    columns = min(2, len(group.cells))
    lines = math.ceil(len(group.cells) / columns)
    paths = []
    for kind, (quantity, words, scale) in quantities.items():
        if not _list_values(group, quantity):
            continue
        for suffix in (".png", ".pdf"):
            path = folder / f"{name}-{kind}{suffix}"
            size = 5.6 * columns + 0.6, 3.9 * lines + 0.3
            with figure(path, *size, nrows=lines, ncols=columns, squeeze=False, sharey="row") as (drawn, axes):
                _panels(group, looks, axes.flat, quantity, scale)
                for row in axes:
                    row[0].set_ylabel(words)
                    if kind != "accuracy" and min(_list_values(group, quantity)) > 0:
                        row[0].set_yscale("log")
                handles, labels = _unique(axes.flat)
                drawn.legend(
                    handles, labels, loc="outside lower center", ncols=_legend_columns(labels, size[0]), frameon=False
                )
                drawn.suptitle(_plain(group.title))
            paths.append(path)
    return paths


def _list_values(group: Group, quantity: str) -> list[float]:
    runs = [run for row in group.rows for entry in row.entries.values() for run in entry.runs]
    return [value for run in runs for value in getattr(run.curve, quantity) if value is not None]


def _panels(group: Group, looks: Mapping[str, Look], panels: Any, quantity: str, scale: float) -> None:
    places = list(panels)
    for axes, cell in zip(places, group.cells, strict=False):
        for row in group.rows:
            if cell.name in row.entries:
                _curve(
                    axes,
                    row.label,
                    looks[row.label],
                    [run.curve for run in row.entries[cell.name].runs],
                    quantity,
                    scale,
                )
        axes.set(xlabel="round", title=_plain(cell.name))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in places[len(group.cells) :]:
        axes.set_visible(False)


def _curve(axes: Any, label: str, look: Look, curves: list[Any], quantity: str, scale: float) -> None:
    average = averaged(curves)
    known = [k for k, value in enumerate(average.mean[quantity]) if value is not None]
    x = [average.round[k] for k in known]
    y = [scale * (average.mean[quantity][k] or 0.0) for k in known]
    width = 2.4 if look.strong else 1.5
    axes.plot(x, y, label=_plain(label), color=look.light, linestyle=look.line, linewidth=width)
    if any(average.deviation[quantity][k] is not None for k in known):
        spread = [scale * (average.deviation[quantity][k] or 0.0) for k in known]
        low = [value - s for value, s in zip(y, spread, strict=True)]
        axes.fill_between(x, low, [v + s for v, s in zip(y, spread, strict=True)], color=look.light, alpha=0.15, lw=0)


def _unique(panels: Any) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _legend_columns(labels: list[str], inches: float) -> int:
    """As many as fit, five at most.

    >>> _legend_columns(["FedCM (alpha 0.05)", "FedCM (alpha 1)"], 6.2), _legend_columns(["FedCM"] * 7, 11.8)
    (2, 5)
    """
    widest = 0.75 + 0.09 * max(len(label) for label in labels)
    return max(1, min(5, len(labels), int(inches / widest)))


def _plain(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")
