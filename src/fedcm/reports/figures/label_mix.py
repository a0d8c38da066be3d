"""Draw how labels are distributed over clients."""

from pathlib import Path
from typing import Any

import numpy as np

from fedcm.reports.figures.style import escape_dollars, open_figure

_MAX_CLIENTS = 100  # in the figure; more could not be distinguished
_MAX_BAR_CLASSES = 20  # that colours can distinguish; more are drawn as a map


def draw_label_mix(counts: np.ndarray, title: str, path: Path) -> Path:
    """Draw the label counts of clients: bars for up to 20 classes, else a map.

    Args:
        counts: (clients, classes), the number of examples of each class that each client holds.
        title: The figure's title.
        path: A file that ends in .png, .pdf or .svg.

    Returns:
        The path.

    Raises:
        UserError: If the path has another suffix.
    """
    clients, classes = counts.shape
    shown = counts[:: -(-clients // _MAX_CLIENTS)]
    note = "" if len(shown) == clients else f" ({len(shown)} of {clients} shown)"
    with open_figure(path, 10.0, 4.5) as (figure, axes):
        (_draw_bars if classes <= _MAX_BAR_CLASSES else _draw_map)(figure, axes, shown)
        axes.set(xlabel=f"client{note}", title=escape_dollars(title))
        axes.spines[["top", "right"]].set_visible(False)
    return path


def _draw_bars(figure: Any, axes: Any, counts: np.ndarray) -> None:
    """Draw one bar per client and one colour per class."""
    import matplotlib
    from matplotlib.patches import Patch

    classes = counts.shape[1]
    colours = matplotlib.colormaps["tab20"](np.linspace(0, 1, max(classes, 2)))
    tops = np.cumsum(counts, axis=1)
    for label in range(classes):
        x, height = np.arange(len(counts)), counts[:, label]
        axes.bar(x, height, bottom=tops[:, label] - height, width=1.0, color=colours[label])
    axes.set(ylabel="examples", xlim=(-0.5, len(counts) - 0.5))
    patches = [Patch(color=colours[label], label=str(label)) for label in range(classes)]
    figure.legend(handles=patches, title="class", loc="outside right center", frameon=False)


def _draw_map(figure: Any, axes: Any, counts: np.ndarray) -> None:
    """Draw one column per client and one row per class, darker for more examples."""
    image = axes.imshow(counts.T, aspect="auto", origin="lower", cmap="Blues", interpolation="nearest")
    axes.set(ylabel="class")
    figure.colorbar(image, ax=axes, label="examples")
