"""Accuracy, or where labels are no classes the test loss, and training loss against rounds, one curve per run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.reports.figures.style import figure, style_of
from fedcm.reports.metric import LOSS, choose_metric, read_scores
from fedcm.runs.summary import read_points

_SHORT, _MEDIUM = 16, 60  # letters of a name beside the curves, and of one of two in a line below them


def draw_curves(runs: Mapping[str, Sequence[dict[str, Any]]], title: str, path: Path) -> Path:
    """`runs` gives the metrics of each curve by its name."""
    metric = choose_metric(
        (read_points(lines, "test_accuracy"), read_points(lines, "test_loss")) for lines in runs.values()
    )
    longest = max(map(len, runs))
    columns = 2 if longest <= _MEDIUM else 1
    below = 0.25 * math.ceil(len(runs) / columns) if longest > _SHORT else 0.0  # names of settings would hide curves
    with figure(path, 10.5, 4.2 + below, ncols=2) as (drawn, (left, right)):
        for name, metrics in runs.items():
            look = style_of(name, list(runs))
            trained = [line for line in metrics if line["loss"] is not None]
            look |= {"label": name.replace("$", r"\$")}
            left.plot(*read_scores(metrics, metric), **look)
            right.plot([x["round"] + 1 for x in trained], smoothed([x["loss"] for x in trained]), **look)
        left.set(xlabel="round", ylabel=metric.axis)
        right.set(xlabel="round", ylabel="training loss, mean of 10 rounds", yscale="log")
        if metric is LOSS and all(value > 0 for lines in runs.values() for value in read_scores(lines, metric)[1]):
            left.set_yscale("log")
        if below:
            drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)
        else:
            left.legend(loc="lower right" if metric.higher_is_better else "upper right", frameon=False)
        for axes in (left, right):
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        drawn.suptitle(title.replace("$", r"\$"))
    return path


def smoothed(values: Sequence[float], window: int = 10) -> list[float]:
    """
    >>> smoothed([1.0, 3.0, 5.0], window=2)
    [1.0, 2.0, 4.0]
    """
    result = []
    for k in range(len(values)):
        recent = values[max(0, k + 1 - window) : k + 1]
        result.append(sum(recent) / len(recent))
    return result
