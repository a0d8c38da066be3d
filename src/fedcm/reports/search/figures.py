"""The charts of a search as a picture: the history and one panel per tuned setting, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcm.reports.figures.axes import choose_log_ticks, format_tick
from fedcm.reports.figures.style import PALETTE, escape_dollars, open_figure
from fedcm.reports.search.charts import SearchChart

_FINISHED, _PRUNED, _BEST = PALETTE[0], PALETTE[6], PALETTE[1]
_PER_ROW = 3  # panels


def draw_search(charts: Sequence[SearchChart], title: str, path: Path) -> Path:
    """Draw the charts of one algorithm.

    Args:
        charts: Its charts.
        title: The figure's title.
        path: A file that ends in .png, .pdf or .svg.

    Returns:
        The path.
    """
    columns = min(len(charts), _PER_ROW)
    rows = -(-len(charts) // columns)
    with open_figure(path, 4.2 * columns, 3.6 * rows, ncols=columns, nrows=rows, squeeze=False) as (figure, axes):
        panels = list(axes.flat)
        for panel, chart in zip(panels, charts, strict=False):
            _draw_chart(panel, chart)
        for panel in panels[len(charts) :]:
            panel.set_visible(False)
        panels[0].legend(frameon=False)
        figure.suptitle(escape_dollars(title))
    return path


def _draw_chart(axes: Any, chart: SearchChart) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    for state, style in (
        ("finished", {"color": _FINISHED, "marker": "o"}),
        ("pruned", {"color": _PRUNED, "marker": "o", "facecolors": "none"}),
    ):
        chosen = [(x, y) for x, y, _, own in chart.points if own == state]
        if chosen:
            axes.scatter(
                [str(x) if isinstance(x, str) else x for x, _ in chosen], [y for _, y in chosen], label=state, **style
            )
    if chart.best:
        axes.step(
            [x for x, _ in chart.best], [y for _, y in chart.best], where="post", color=_BEST, label="best so far"
        )
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    if chart.log:
        values = [float(x) for x, *_ in chart.points]
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(choose_log_ticks(min(values) / 1.3, max(values) * 1.3)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, position: format_tick(value))
    axes.set(xlabel=escape_dollars(chart.x_title), ylabel=chart.y_title)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
