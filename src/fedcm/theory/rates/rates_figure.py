"""Error against what is varied, a panel an experiment, on log-log axes, with the proven slope beside the curves."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcm.reports.figures.style import figure, style_of
from fedcm.theory.rates.measure import Row
from fedcm.theory.rates.points import LABELS

_COLUMNS = 3
_MARKERS = {"fedcm": "o", "fedavg": "s", "scaffold": "^", "feddyn": "D"}


def draw(rows: Sequence[Row], folder: Path, name: str) -> list[Path]:
    """`NAME` as PNG and PDF."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(row.experiment.name, []).append(row)
    columns = min(_COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    paths = []
    for suffix in (".png", ".pdf"):
        path = folder / f"{name}{suffix}"
        grid = {"nrows": lines, "ncols": columns, "squeeze": False}
        with figure(path, 4.1 * columns + 0.6, 3.3 * lines + 0.5, **grid) as (drawn, axes):
            for place, shown in zip(axes.flat, panels.values(), strict=False):
                _panel(place, shown)
            for place in list(axes.flat)[len(panels) :]:
                place.set_visible(False)
            handles = _legend(axes.flat)
            drawn.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
        paths.append(path)
    return paths


def _panel(axes: Any, rows: Sequence[Row]) -> None:
    experiment = rows[0].experiment
    values = experiment.values
    for row in rows:
        means = np.array(row.errors)
        apart = 1.96 * np.array(row.standard_errors)
        style = style_of(row.algorithm, list(LABELS)) | {"marker": _MARKERS[row.algorithm], "markersize": 4.5}
        axes.plot(values, means, label=LABELS[row.algorithm], **style)
        low = np.maximum(means - apart, means / 10)  # a log axis has no room below
        axes.fill_between(values, low, means + apart, color=style["color"], alpha=0.15, lw=0)
    _guide(axes, values, rows[0])
    what = "mean ‖∇f(z)‖²" if experiment.case == "not convex" else "f(average of z) − f*"
    axes.set(xscale="log", yscale="log", xlabel=experiment.varied, ylabel=what)
    axes.set_title(experiment.name, fontsize=11)
    axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _guide(axes: Any, values: Sequence[float], row: Row) -> None:
    """The proven slope, through FedCM's middle point."""
    if not isinstance(row.proven, float | int):
        return
    middle = len(values) // 2
    through = row.errors[middle]
    line = [through * (value / values[middle]) ** row.proven for value in values]
    axes.plot(values, line, color="#7F7F7F", linewidth=1.0, linestyle=(0, (1, 2)), label="proven slope", zorder=1)


def _legend(panels: Any) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found
