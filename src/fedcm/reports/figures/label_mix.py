"""How labels are dealt out over clients, as a picture and in numbers."""

from pathlib import Path
from typing import Any

import numpy as np

from fedcm.reports.figures.style import figure

_SHOWN = 100  # clients in the picture; more are told apart by nobody
_BARS = 20  # classes told apart by colour; more are drawn as a map


def draw_label_mix(counts: np.ndarray, title: str, path: Path) -> Path:
    """`counts` (clients, classes): how many examples of each class each client holds."""
    clients, classes = counts.shape
    shown = counts[:: -(-clients // _SHOWN)]
    every = "" if len(shown) == clients else f" ({len(shown)} of {clients} shown)"
    with figure(path, 10.0, 4.5) as (drawn, axes):
        (_bars if classes <= _BARS else _map)(drawn, axes, shown)
        axes.set(xlabel=f"client{every}", title=title)
        axes.spines[["top", "right"]].set_visible(False)
    return path


def _bars(drawn: Any, axes: Any, counts: np.ndarray) -> None:
    """A bar a client, a colour a class."""
    import matplotlib
    from matplotlib.patches import Patch

    classes = counts.shape[1]
    colours = matplotlib.colormaps["tab20"](np.linspace(0, 1, max(classes, 2)))
    tops = np.cumsum(counts, axis=1)
    for label in range(classes):
        at, height = np.arange(len(counts)), counts[:, label]
        axes.bar(at, height, bottom=tops[:, label] - height, width=1.0, color=colours[label])
    axes.set(ylabel="examples", xlim=(-0.5, len(counts) - 0.5))
    patches = [Patch(color=colours[label], label=str(label)) for label in range(classes)]
    drawn.legend(handles=patches, title="class", loc="outside right center", frameon=False)


def _map(drawn: Any, axes: Any, counts: np.ndarray) -> None:
    """Many classes: a column a client, a row a class, darker for more examples."""
    image = axes.imshow(counts.T, aspect="auto", origin="lower", cmap="Blues", interpolation="nearest")
    axes.set(ylabel="class")
    drawn.colorbar(image, ax=axes, label="examples")


def spread(counts: np.ndarray) -> dict[str, float]:
    """A split in numbers: sizes, how many classes a client sees, how far its mix is from the whole's.

    The distance is the total variation between the client's label mix and the population's: 0 = the same, 1 = apart.
    """
    sizes = counts.sum(1)
    mix = counts / np.maximum(sizes, 1)[:, None]
    whole = counts.sum(0) / counts.sum()
    return {
        "clients": len(counts),
        "examples": int(sizes.sum()),
        "least_examples": int(sizes.min()),
        "most_examples": int(sizes.max()),
        "mean_classes": float((counts > 0).sum(1).mean()),
        "mean_distance": float(np.abs(mix - whole).sum(1).mean() / 2),
    }
