"""Accuracy and loss against rounds, one curve a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.report.style import figure, style_of


def draw_curves(runs: Mapping[str, Sequence[dict[str, Any]]], title: str, path: Path) -> Path:
    """`runs` gives the metrics of each curve by its name."""
    with figure(path, 10.5, 4.2, ncols=2) as (drawn, (left, right)):
        for name, metrics in runs.items():
            look = style_of(name, list(runs))
            tested = [line for line in metrics if line.get("test_accuracy") is not None]
            trained = [line for line in metrics if line["loss"] is not None]
            left.plot([x["round"] + 1 for x in tested], [100 * x["test_accuracy"] for x in tested], label=name, **look)
            right.plot([x["round"] + 1 for x in trained], smoothed([x["loss"] for x in trained]), label=name, **look)
        left.set(xlabel="round", ylabel="test accuracy, %")
        right.set(xlabel="round", ylabel="training loss, mean of 10 rounds", yscale="log")
        left.legend(loc="lower right", frameon=False)
        for axes in (left, right):
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        drawn.suptitle(title)
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
