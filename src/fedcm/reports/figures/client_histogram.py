"""Draw a histogram over clients: of a metric, or of their local steps."""

from pathlib import Path
from typing import Any

from fedcm.reports.figures.style import escape_dollars, open_figure


def draw_client_histogram(picture: dict[str, Any], path: Path) -> Path:
    """Draw a histogram over clients.

    Args:
        picture: A picture of `list_client_histograms` or `list_step_histograms`.
        path: A file that ends in .png, .pdf or .svg.

    Returns:
        The path.
    """
    with open_figure(path, 6.2, 3.9) as (_, axes):
        centres, counts = zip(*picture["bins"], strict=True)
        axes.bar(centres, counts, width=0.92 * picture["width"], color="#0072B2")
        axes.set(xlabel=picture["metric"], ylabel=picture["counted"], title=escape_dollars(picture["title"]))
        axes.spines[["top", "right"]].set_visible(False)
    return path
