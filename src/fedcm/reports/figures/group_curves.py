"""The curves of a table: one panel per cell, with the mean over seeds and a band of one standard deviation."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.reports.digest import Curve
from fedcm.reports.entry import Entry, average_curves
from fedcm.reports.figures.axes import finish_axes, label_metric_axis, plot_curve, set_log_y
from fedcm.reports.figures.style import CurveStyle, escape_dollars, open_figure
from fedcm.reports.groups import MAX_CURVES, Group
from fedcm.system.formatting import format_count

_BACKGROUND = CurveStyle("#C8CCD0", "#C8CCD0", "solid", "-", strong=False)  # of curves that are not named


def draw_group(group: Group, styles: Mapping[str, CurveStyle], folder: Path, name: str) -> list[Path]:
    """Draw the test metric, the training loss and the consensus distance of a table, each as PNG and PDF.

    Args:
        group: The table.
        styles: The styles of curves, by the row's label.
        folder: The folder to write to.
        name: What the files' names begin with: `NAME-accuracy` (or another
            metric) or `NAME-test-loss`, `NAME-loss`, and for decentralised
            runs `NAME-consensus`.

    Returns:
        The files.
    """
    metric = group.metric
    quantities = {
        metric.file_name: (metric.column, metric.title, metric.scale),
        "loss": ("train_loss", "training loss", 1.0),
        "consensus": ("consensus_distance", "distance of the nodes from their mean", 1.0),
    }
    columns = min(2, len(group.cells))
    lines = math.ceil(len(group.cells) / columns)
    size = 5.6 * columns + 0.6, 3.9 * lines + 0.3
    paths = []
    for kind, (quantity, title, scale) in quantities.items():
        if not any(value is not None for run in group.list_runs() for value in run.curve.get_column(quantity)):
            continue
        for suffix in (".png", ".pdf"):
            path = folder / f"{name}-{kind}{suffix}"
            with open_figure(path, *size, nrows=lines, ncols=columns, squeeze=False, sharey="row") as (figure, axes):
                values = _draw_panels(group, styles, axes, quantity, scale)
                for panels, own in zip(axes, values, strict=True):
                    if quantity == metric.column and metric.higher_is_better:
                        label_metric_axis(panels[0], metric)
                    else:
                        panels[0].set_ylabel(title)
                        set_log_y(panels[0], own)
                handles, labels = _list_legend_entries(axes.flat)
                legend_columns = _count_legend_columns(labels, size[0])
                figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns, frameon=False)
                figure.suptitle(escape_dollars(f"{group.title}: {title}"))
            paths.append(path)
    return paths


def _draw_panels(
    group: Group, styles: Mapping[str, CurveStyle], axes: Any, quantity: str, scale: float
) -> list[list[float]]:
    """Draw a panel per cell, and return the values of all curves by line of panels."""
    columns = len(axes[0])
    panels = list(axes.flat)
    values: list[list[float]] = [[] for _ in axes]
    for k, (panel, cell) in enumerate(zip(panels, group.cells, strict=False)):
        curves = {
            row.label: [run.curve for run in row.entries[cell.name].runs]
            for row in group.rows
            if cell.name in row.entries and _has_values(row.entries[cell.name], quantity)
        }
        main = {row.label for row in group.list_main_rows(cell.name)} if len(curves) > MAX_CURVES else set(curves)
        others = [label for label in curves if label not in main]
        for label in (label for label in curves if label in main):
            values[k // columns] += _draw_curve(panel, label, styles[label], curves[label], quantity, scale)
        for position, label in enumerate(others):
            name = format_count(len(others), "other") if position == 0 else "_"  # matplotlib's name for no legend entry
            values[k // columns] += _draw_curve(panel, name, _BACKGROUND, curves[label], quantity, scale)
        panel.set_title(escape_dollars(cell.name))
        finish_axes(panel)
    for panel in panels[len(group.cells) :]:
        panel.set_visible(False)
    return values


def _has_values(entry: Entry, quantity: str) -> bool:
    return any(value is not None for run in entry.runs for value in run.curve.get_column(quantity))


def _draw_curve(
    axes: Any, label: str, style: CurveStyle, curves: Sequence[Curve], quantity: str, scale: float
) -> list[float]:
    """Draw the mean of curves with a band, and return the mean's values."""
    average = average_curves(curves)
    points = [
        (round, scale * mean, scale * (deviation or 0.0))
        for round, mean, deviation in zip(
            average.round, average.mean[quantity], average.deviation[quantity], strict=True
        )
        if mean is not None
    ]
    if not points:
        return []
    x, y, spread = (list(column) for column in zip(*points, strict=True))
    name = escape_dollars(label)
    if style is _BACKGROUND:
        plot_curve(axes, x, y, label=name, color=style.light, linestyle=style.line, linewidth=0.8, zorder=1)
        return y
    width = 2.4 if style.strong else 1.5
    plot_curve(axes, x, y, label=name, color=style.light, linestyle=style.line, linewidth=width)
    if len(points) == 1 and spread[0]:
        axes.errorbar(x, y, spread, color=style.light, capsize=3)
    elif any(spread):
        low, high = [a - s for a, s in zip(y, spread, strict=True)], [a + s for a, s in zip(y, spread, strict=True)]
        axes.fill_between(x, low, high, color=style.light, alpha=0.15, lw=0)
    return y


def _list_legend_entries(panels: Any) -> tuple[list[Any], list[str]]:
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    return list(entries.values()), list(entries)


def _count_legend_columns(labels: list[str], inches: float) -> int:
    """Return how many columns fit, five at most.

    >>> _count_legend_columns(["FedCM (alpha 0.05)", "FedCM (alpha 1)"], 6.2)
    2
    >>> _count_legend_columns(["FedCM"] * 7, 11.8)
    5
    """
    widest = 0.75 + 0.09 * max(len(label) for label in labels)
    return max(1, min(5, len(labels), int(inches / widest)))
