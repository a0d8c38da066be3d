"""FedAvg's error over FedCM's against the horizon: the biased problem and its controls in one panel."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcm.reports.figures.style import figure, style_of
from fedcm.theory.rates.ratios import Comparison


def draw_ratios(compared: Sequence[Comparison], folder: Path, name: str) -> list[Path]:
    """`NAME` as PNG and PDF."""
    labels = [one.fedcm.experiment.name for one in compared]
    values = compared[0].fedcm.experiment.values  # the same in all of them
    paths = []
    for suffix in (".png", ".pdf"):
        path = folder / f"{name}{suffix}"
        with figure(path, 7.0, 4.0) as (drawn, axes):
            axes.axhline(1.0, color="#7F7F7F", linewidth=1.0, linestyle=(0, (1, 2)))
            for one, label in zip(compared, labels, strict=True):
                ratios = np.array(one.ratios)
                style = style_of(label, labels)
                axes.plot(values, ratios[:, 0], label=label, marker="o", markersize=4.5, **style)
                axes.fill_between(values, ratios[:, 1], ratios[:, 2], color=style["color"], alpha=0.15, lw=0)
            axes.set(xscale="log", xlabel=compared[0].fedcm.experiment.varied, ylabel="FedAvg's error ÷ FedCM's")
            ticks = compared[0].fedcm.experiment.values
            axes.set_xticks(ticks, [f"{value:g}" for value in ticks], minor=False)
            axes.set_xticks([], minor=True)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            drawn.legend(loc="outside lower center", ncols=2, frameon=False)
        paths.append(path)
    return paths
