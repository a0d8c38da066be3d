"""Draw the measured errors with the proven slopes, and FedAvg's error divided by FedCM's."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcm.reports.figures.style import choose_style, open_figure
from fedcm.theory.rates.experiment import LABELS
from fedcm.theory.rates.measurement import RateRow
from fedcm.theory.rates.ratios import AlgorithmComparison

_COLUMNS = 3
_MARKERS = {"fedcm": "o", "fedavg": "s", "scaffold": "^", "feddyn": "D"}
_GREY = {"color": "#7F7F7F", "linewidth": 1.0, "linestyle": (0, (1, 2))}


def draw_rates(rows: Sequence[RateRow], folder: Path, name: str) -> list[Path]:
    """Draw error against the varied quantity on log-log axes, one panel per experiment.

    Returns:
        The paths of `name`.png and `name`.pdf.
    """
    panels: dict[str, list[RateRow]] = {}
    for row in rows:
        panels.setdefault(row.experiment.name, []).append(row)
    columns = min(_COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    paths = []
    for suffix in (".png", ".pdf"):
        path = folder / f"{name}{suffix}"
        layout = {"nrows": lines, "ncols": columns, "squeeze": False}
        with open_figure(path, 4.1 * columns + 0.6, 3.3 * lines + 0.5, **layout) as (whole, axes):
            for panel, panel_rows in zip(axes.flat, panels.values(), strict=False):
                _draw_panel(panel, panel_rows)
            for panel in list(axes.flat)[len(panels) :]:
                panel.set_visible(False)
            handles = _collect_legend(axes.flat)
            whole.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
        paths.append(path)
    return paths


def draw_ratios(comparisons: Sequence[AlgorithmComparison], folder: Path, name: str) -> list[Path]:
    """Draw FedAvg's error divided by FedCM's against the horizon, all experiments in one panel.

    Returns:
        The paths of `name`.png and `name`.pdf.
    """
    labels = [comparison.fedcm.experiment.name for comparison in comparisons]
    experiment = comparisons[0].fedcm.experiment  # the values are the same in all of them
    paths = []
    for suffix in (".png", ".pdf"):
        path = folder / f"{name}{suffix}"
        with open_figure(path, 7.0, 4.0) as (whole, axes):
            axes.axhline(1.0, **_GREY)
            for comparison, label in zip(comparisons, labels, strict=True):
                ratios = np.array(comparison.ratios)
                style = choose_style(label, labels)
                axes.plot(experiment.values, ratios[:, 0], label=label, marker="o", markersize=4.5, **style)
                axes.fill_between(experiment.values, ratios[:, 1], ratios[:, 2], color=style["color"], alpha=0.15, lw=0)
            axes.set(xscale="log", xlabel=experiment.varied, ylabel="FedAvg's error ÷ FedCM's")
            _finish_axes(axes, experiment.values)
            whole.legend(loc="outside lower center", ncols=2, frameon=False)
        paths.append(path)
    return paths


def _draw_panel(axes: Any, rows: Sequence[RateRow]) -> None:
    experiment = rows[0].experiment
    values = experiment.values
    for row in rows:
        means = np.array(row.errors)
        half_width = 1.96 * np.array(row.standard_errors)
        style = choose_style(row.algorithm, list(LABELS)) | {"marker": _MARKERS[row.algorithm], "markersize": 4.5}
        axes.plot(values, means, label=LABELS[row.algorithm], **style)
        low = np.maximum(means - half_width, means / 10)  # a log axis cannot show 0 or less
        axes.fill_between(values, low, means + half_width, color=style["color"], alpha=0.15, lw=0)
    _draw_proven_slope(axes, values, rows[0])
    error = "mean ‖∇f(z)‖²" if experiment.case == "not convex" else "f(average of z) − f*"
    axes.set(xscale="log", yscale="log", xlabel=experiment.varied, ylabel=error)
    axes.set_title(experiment.name, fontsize=11)
    _finish_axes(axes, values)


def _finish_axes(axes: Any, values: Sequence[float]) -> None:
    axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_proven_slope(axes: Any, values: Sequence[float], row: RateRow) -> None:
    """Draw the proven slope through FedCM's middle point."""
    if not isinstance(row.proven, float | int):
        return
    middle = len(values) // 2
    through = row.errors[middle]
    line = [through * (value / values[middle]) ** row.proven for value in values]
    axes.plot(values, line, label="proven slope", zorder=1, **_GREY)


def _collect_legend(panels: Any) -> Mapping[str, Any]:
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return handles
