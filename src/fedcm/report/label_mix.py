"""How labels are dealt out: one bar a client, one colour a class."""

from pathlib import Path

import numpy as np

from fedcm.report.style import figure

_SHOWN = 100  # clients in the picture; more are told apart by nobody


def draw_label_mix(counts: np.ndarray, title: str, path: Path) -> Path:
    """`counts` (clients, classes): how many examples of each class each client holds."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Patch

    clients, classes = counts.shape
    shown = counts[:: -(-clients // _SHOWN)]
    colours = matplotlib.colormaps["tab20" if classes <= 20 else "viridis"](np.linspace(0, 1, max(classes, 2)))
    tops = np.cumsum(shown, axis=1)
    with figure(path, 10.0, 4.5) as (drawn, axes):
        for label in range(classes):
            at = np.arange(len(shown))
            axes.bar(at, shown[:, label], bottom=tops[:, label] - shown[:, label], width=1.0, color=colours[label])
        every = "" if len(shown) == clients else f" ({len(shown)} of {clients} shown)"
        axes.set(xlabel=f"client{every}", ylabel="examples", xlim=(-0.5, len(shown) - 0.5), title=title)
        axes.spines[["top", "right"]].set_visible(False)
        if classes <= 20:
            patches = [Patch(color=colours[label], label=str(label)) for label in range(classes)]
            drawn.legend(handles=patches, title="class", loc="outside right center", frameon=False)
        else:
            scale = ScalarMappable(Normalize(0, classes - 1), "viridis")
            drawn.colorbar(scale, ax=axes, label="class")
    return path


def spread(counts: np.ndarray) -> dict[str, float]:
    """A split in numbers: sizes, how many classes a client sees, how far its mix is from the whole's.

    The distance is the total variation between the client's label mix and the population's: 0 = the same, 1 = apart.
    """
    sizes = counts.sum(1)
    mix = counts / np.maximum(sizes, 1)[:, None]
    whole = counts.sum(0) / counts.sum()
    return {
        "clients": float(len(counts)),
        "examples": float(sizes.sum()),
        "least_examples": float(sizes.min()),
        "most_examples": float(sizes.max()),
        "mean_classes": float((counts > 0).sum(1).mean()),
        "mean_distance": float(np.abs(mix - whole).sum(1).mean() / 2),
    }
