"""Test accuracy (or test loss) and training loss against rounds, with one curve per run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedcm.reports.figures.axes import finish_axes, label_metric_axis, plot_curve, set_log_y
from fedcm.reports.figures.style import choose_style, escape_dollars, open_figure
from fedcm.reports.metric import ACCURACY, Metric, choose_metric, read_evaluations
from fedcm.runs.summary import read_points

_NO_HEADLINES: Mapping[str, Metric] = MappingProxyType({})
_SHORT, _MEDIUM = 16, 60  # letters of a name that fits inside the axes, and of one that fits in half a line below them


def draw_curves(
    runs: Mapping[str, Sequence[dict[str, Any]]],
    title: str,
    path: Path,
    headlines: Mapping[str, Metric] = _NO_HEADLINES,
) -> Path:
    """Draw the curves of runs into one figure.

    Args:
        runs: The lines of `metrics.jsonl` by the name of the curve.
        title: The figure's title.
        path: A file that ends in .png, .pdf or .svg.
        headlines: The headline metrics by the name of the curve; by default accuracy.

    Returns:
        The path.

    Raises:
        UserError: If the path has another suffix.
    """
    metric = choose_metric(
        (_find_headline(lines, headlines.get(name, ACCURACY)), read_points(lines, "test_loss"))
        for name, lines in runs.items()
    )
    longest = max(map(len, runs))
    columns = 2 if longest <= _MEDIUM else 1
    legend_height = 0.25 * math.ceil(len(runs) / columns) if longest > _SHORT else 0.0  # long names would hide curves
    scores: list[float] = []
    losses: list[float] = []
    with open_figure(path, 10.5, 4.2 + legend_height, ncols=2) as (figure, (left, right)):
        for name, lines in runs.items():
            style = choose_style(name, list(runs)) | {"label": escape_dollars(name)}
            rounds, values = read_evaluations(lines, metric)
            trained = [line for line in lines if line["loss"] is not None]
            smooth_losses = smooth([line["loss"] for line in trained])
            plot_curve(left, rounds, values, **style)
            plot_curve(right, [line["round"] + 1 for line in trained], smooth_losses, **style)
            scores += values
            losses += smooth_losses
        left.set_title(metric.title)
        right.set(ylabel="training loss", title="training loss, mean of 10 rounds")
        label_metric_axis(left, metric)
        set_log_y(right, losses)
        if not metric.higher_is_better:
            set_log_y(left, scores)
        if legend_height:
            figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)
        else:
            left.legend(loc="lower right" if metric.higher_is_better else "upper right", frameon=False)
        finish_axes(left)
        finish_axes(right)
        figure.suptitle(escape_dollars(title))
    return path


def _find_headline(lines: Sequence[dict[str, Any]], metric: Metric) -> Metric | None:
    return metric if read_points(lines, metric.column) else None


def smooth(values: Sequence[float], window: int = 10) -> list[float]:
    """Return the mean of each value and those before it, `window` values at most.

    >>> smooth([1.0, 3.0, 5.0], window=2)
    [1.0, 2.0, 4.0]
    """
    result = []
    for k in range(len(values)):
        recent = values[max(0, k + 1 - window) : k + 1]
        result.append(sum(recent) / len(recent))
    return result
