"""The figures of docs/results.md as data, and how they are drawn.

A file carries a checksum of the data that it shows, so that a test can tell whether it is up to date. It has no date.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from fedcm.reports.figures.axes import finish_axes, label_metric_axis, plot_curve
from fedcm.reports.figures.style import DASHES, FIXED, PALETTE, choose_row_styles, escape_dollars, open_figure
from fedcm.reports.groups import TITLES
from fedcm.reports.metric import ACCURACY

_NOTE = "Description"  # a standard keyword of PNG
_COLOURS = 128
_MARKERS = "osD^vPX"
Points = tuple[tuple[float, float, float | None], ...]  # x, y, and the deviation of y


@final
@dataclass(frozen=True)
class CurveFigure:
    """Accuracy in % against rounds, with one panel per cell and a band of one standard deviation."""

    title: str
    panels: Mapping[str, Mapping[str, Points]]  # by the panel's title and the curve's label
    algorithms: Mapping[str, str]  # by the curve's label

    def draw(self, path: Path) -> None:
        """Draw the figure into a PNG file."""
        labels = [label for curves in self.panels.values() for label in curves]
        styles = choose_row_styles((label, name, labels.count(label)) for label, name in self.algorithms.items())
        columns = min(2, len(self.panels))
        lines = math.ceil(len(self.panels) / columns)
        grid = {"nrows": lines, "ncols": columns, "squeeze": False, "sharey": True}
        legend: dict[str, Any] = {}
        width = 4.6 * columns + 1.4
        with open_figure(path, width, 3.3 * lines + 0.7, **grid) as (figure, axes):
            for axis, (title, curves) in zip(axes.flat, self.panels.items(), strict=False):
                for label, points in curves.items():
                    style = styles[label]
                    x, y, spread = zip(*points, strict=True)
                    line = {"color": style.light, "linestyle": style.line, "linewidth": 2.4 if style.strong else 1.5}
                    plot_curve(axis, x, y, label=escape_dollars(label), **line)
                    low, high = ([b + sign * (s or 0.0) for b, s in zip(y, spread, strict=True)] for sign in (-1, 1))
                    if any(spread):
                        axis.fill_between(x, low, high, color=style.light, alpha=0.15, lw=0)
                axis.set_title(escape_dollars(title), fontsize="medium")
                finish_axes(axis)
                legend |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
            for axis in list(axes.flat)[len(self.panels) :]:
                axis.set_visible(False)
            for axis in axes[:, 0]:
                label_metric_axis(axis, ACCURACY)
            columns = max(1, min(5, len(legend), int(width / (0.9 + 0.1 * max(map(len, legend))))))
            figure.legend(legend.values(), legend, loc="outside lower center", ncols=columns, frameon=False)
            figure.suptitle(escape_dollars(self.title))
        _add_note(path, self)


@final
@dataclass(frozen=True)
class DotFigure:
    """One line of dots per row, such as the accuracies of several algorithms, with intervals if there are any."""

    title: str
    x_title: str
    rows: Mapping[str, Mapping[str, tuple[float, float, float]]]  # by row and series: value, ends of the interval
    zero_line: bool = False

    def draw(self, path: Path) -> None:
        """Draw the figure into a PNG file."""
        series = list(dict.fromkeys(name for row in self.rows.values() for name in row))
        names = {title: name for name, title in TITLES.items()}
        with open_figure(path, 8.0, 1.5 + 0.27 * len(self.rows)) as (figure, axis):
            for k, one in enumerate(series):
                colour = FIXED.get(names.get(one, ""), k % len(PALETTE))
                found = [(row[one], y) for y, row in enumerate(self.rows.values()) if one in row]
                values, places = [value for (value, _, _), _ in found], [y for _, y in found]
                errors = [[v - low for (v, low, _), _ in found], [high - v for (v, _, high), _ in found]]
                marker = {"fmt": _MARKERS[k % len(_MARKERS)], "markersize": 6, "color": PALETTE[colour], "capsize": 3}
                axis.errorbar(values, places, xerr=errors if any(map(any, errors)) else None, label=one, **marker)
            axis.set_yticks(range(len(self.rows)), list(self.rows))
            axis.set_ylim(len(self.rows) - 0.5, -0.5)
            axis.set_xlabel(self.x_title)
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            if self.zero_line:
                axis.axvline(0, color="#7F7F7F", linestyle=DASHES[0], linewidth=1)
            if len(series) > 1:
                figure.legend(loc="outside lower center", ncols=min(4, len(series)), frameon=False)
            figure.suptitle(escape_dollars(self.title))
        _add_note(path, self)


Figure = CurveFigure | DotFigure


def make_note(figure: Figure) -> str:
    """Return the checksum of a figure's data."""
    return hashlib.sha256(json.dumps(asdict(figure), ensure_ascii=False).encode()).hexdigest()


def read_note(path: Path) -> str:
    """Return the checksum that a file carries; empty if it has none."""
    from PIL import Image

    with Image.open(path) as image:
        return str(image.info.get(_NOTE, ""))


def _add_note(path: Path, figure: Figure) -> None:
    """Store the checksum in the file, and reduce its colours, which makes it a third as large."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    note = PngInfo()
    note.add_text(_NOTE, make_note(figure))
    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    reduced.save(path, pnginfo=note, optimize=True)
