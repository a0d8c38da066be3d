"""Accuracy and loss against rounds, one curve a run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.report.style import figure, style_of

_SHORT, _MEDIUM = 16, 60  # letters of a name beside the curves, and of one of two in a line below them


def draw_curves(runs: Mapping[str, Sequence[dict[str, Any]]], title: str, path: Path) -> Path:
    """`runs` gives the metrics of each curve by its name."""
    longest = max(map(len, runs))
    columns = 2 if longest <= _MEDIUM else 1
    below = 0.25 * math.ceil(len(runs) / columns) if longest > _SHORT else 0.0  # names of settings would hide curves
    with figure(path, 10.5, 4.2 + below, ncols=2) as (drawn, (left, right)):
        for name, metrics in runs.items():
            look = style_of(name, list(runs))
            tested = [line for line in metrics if line.get("test_accuracy") is not None]
            trained = [line for line in metrics if line["loss"] is not None]
            look |= {"label": name.replace("$", r"\$")}
            left.plot([x["round"] + 1 for x in tested], [100 * x["test_accuracy"] for x in tested], **look)
            right.plot([x["round"] + 1 for x in trained], smoothed([x["loss"] for x in trained]), **look)
        left.set(xlabel="round", ylabel="test accuracy, %")
        right.set(xlabel="round", ylabel="training loss, mean of 10 rounds", yscale="log")
        if below:
            drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)
        else:
            left.legend(loc="lower right", frameon=False)
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
