"""Colours and dashes of curves, and the files of figures.

An algorithm has the same colour in every figure and on the page. Curves also differ in their dashes, so that they can
be identified without colour.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedcm.errors import UserError
from fedcm.reports.figures.method_groups import get_method_group
from fedcm.system.files import atomic_write

# the palette of Okabe & Ito, ordered such that the most different colours come first
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
# the same hues for a dark page
DARK_PALETTE = ("#4DA3E6", "#F4814A", "#2EBE93", "#E3A0C8", "#F3B53F", "#8ED1F6", "#A8A8A8", "#F2F2F2")
# for the rows of a sweep
RAMP = ("#0D0887", "#5302A3", "#8B0AA5", "#B83289", "#DB5C68", "#F48849", "#D9A400")
DARK_RAMP = ("#7C8CFF", "#9B7BFF", "#C26BE6", "#E667B0", "#FF7F86", "#FFA05C", "#FFD24A")
DASHES = ("--", "-", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-")  # of matplotlib
_PLOTLY_DASHES = ("dash", "solid", "dashdot", "dot", "longdash", "longdashdot", "2px 2px", "solid")
FIXED = {"fedcm": 1, "fedavg": 0, "fedadam": 2, "scaffold": 3, "feddyn": 4}  # positions in the palette
_GROUP_COLOURS = {  # positions in the palette; the algorithms in FIXED have the colours of their groups
    "averaging": 0,
    "client momentum": 1,
    "adaptive": 2,
    "variance reduction": 3,
    "primal-dual": 4,
    "server momentum": 5,
    "decentralised": 6,
    "sharpness-aware": 7,
}
_FORMATS = (".png", ".pdf", ".svg")


class CurveStyle(NamedTuple):
    """How the curve of a table's row is drawn."""

    light: str  # colour on a light page
    dark: str  # colour on a dark page
    dash: str  # plotly's name
    line: object  # matplotlib's name of the same dashes
    strong: bool  # drawn with a thicker line


def choose_row_styles(rows: Iterable[tuple[str, str, int]]) -> dict[str, CurveStyle]:
    """Choose the styles of rows, by label.

    The first row of a known algorithm has the algorithm's colour: the row without settings in its label, or else the
    row in the most cells. Three other rows or more of one algorithm are a sweep, coloured from dark to bright if only
    one algorithm has them. Each other row has the next free colour. If there are more algorithms than colours, a colour
    stands for a group of methods, and the rows of a group differ in their dashes.

    Args:
        rows: For each row its label, its algorithm and its number of cells.
    """
    by_algorithm: dict[str, dict[str, int]] = {}
    for label, algorithm, cells in sorted(rows, key=lambda row: (_has_settings(row[0]), -row[2])):
        by_algorithm.setdefault(algorithm, {}).setdefault(label, cells)
    if len(by_algorithm) > len(PALETTE):
        return _choose_group_styles([(label, algorithm) for algorithm, own in by_algorithm.items() for label in own])
    sweeps = [others for own in by_algorithm.values() if len(others := _list_swept_labels(own)) > 2]
    swept = _choose_ramp_styles(sorted(sweeps[0], key=_make_sort_key)) if len(sweeps) == 1 else {}
    single = [(label, algorithm) for algorithm, own in by_algorithm.items() for label in own if label not in swept]
    return _choose_palette_styles(single) | swept


def choose_style(name: str, names: Sequence[str]) -> dict[str, Any]:
    """Return matplotlib's arguments for a curve: an algorithm's own colour and dashes, or the next free ones.

    Args:
        name: The curve's name, such as that of an algorithm.
        names: All names in the figure.
    """
    used = {FIXED[other] for other in names if other in FIXED}
    free = [k for k in range(len(PALETTE)) if k not in used]
    others = [other for other in names if other not in FIXED]
    k = FIXED[name] if name in FIXED else free[others.index(name) % len(free)]
    return {"color": PALETTE[k], "linestyle": DASHES[k], "linewidth": 2.4 if name == "fedcm" else 1.5}


@contextmanager
def open_figure(path: Path, width: float = 8.0, height: float = 4.5, **grid: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a matplotlib figure and its axes, and write it to `path` when the block ends without an error.

    Args:
        path: A file that ends in .png, .pdf or .svg.
        width: Width in inches.
        height: Height in inches.
        **grid: Arguments of `matplotlib.pyplot.subplots`.

    Raises:
        UserError: If the path has another suffix or is a folder.
    """
    if path.suffix.lower() not in _FORMATS or path.is_dir():
        raise UserError(f"a figure must be a file that ends in {', '.join(_FORMATS)}, got {str(path)!r}")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(width, height), layout="constrained", **grid)
    try:
        yield figure, axes
        with atomic_write(path) as temporary:
            figure.savefig(temporary, dpi=150)
    finally:
        plt.close(figure)


def escape_dollars(text: str) -> str:
    """Escape dollar signs, which would start a formula in matplotlib."""
    return text.replace("$", r"\$")


def _list_swept_labels(cells: dict[str, int]) -> list[str]:
    """Return the labels of an algorithm without the one that has the algorithm's own colour."""
    first, *others = cells
    has_own_colour = not others or not _has_settings(first) or cells[first] > cells[others[0]]
    return others if has_own_colour else [first, *others]


def _has_settings(label: str) -> bool:
    return label.endswith(")")


def _make_sort_key(label: str) -> tuple[float, str]:
    """Return a key that sorts labels by their last number."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", label)
    return (float(numbers[-1]) if numbers else 0.0), label


def _choose_ramp_styles(labels: Sequence[str]) -> dict[str, CurveStyle]:
    styles = {}
    for k, label in enumerate(labels):
        colour = round(k * (len(RAMP) - 1) / (len(labels) - 1))
        styles[label] = CurveStyle(RAMP[colour], DARK_RAMP[colour], _PLOTLY_DASHES[k % 4], DASHES[k % 4], strong=False)
    return styles


def _choose_palette_styles(rows: Sequence[tuple[str, str]]) -> dict[str, CurveStyle]:
    taken = {FIXED[algorithm] for _, algorithm in rows if algorithm in FIXED}
    free = [k for k in range(len(PALETTE)) if k not in taken] or list(range(len(PALETTE)))
    styles: dict[str, CurveStyle] = {}
    seen: set[str] = set()
    spare = 0
    for label, algorithm in rows:
        if algorithm in FIXED and algorithm not in seen:
            colour = dash = FIXED[algorithm]
            seen.add(algorithm)
        else:
            colour, dash = free[spare % len(free)], (free[spare % len(free)] + spare // len(free)) % len(PALETTE)
            spare += 1
        strong = algorithm == "fedcm" and dash == FIXED["fedcm"]
        styles[label] = CurveStyle(PALETTE[colour], DARK_PALETTE[colour], _PLOTLY_DASHES[dash], DASHES[dash], strong)
    return styles


def _choose_group_styles(rows: Sequence[tuple[str, str]]) -> dict[str, CurveStyle]:
    pairs = [(colour, dash) for dash in (1, 0, 2, 3, 4, 5, 6) for colour in range(len(PALETTE))]  # solid lines first
    taken: dict[str, tuple[int, int]] = {}
    for label, algorithm in rows:
        if algorithm in FIXED and not any(name == algorithm for other, name in rows if other in taken):
            taken[label] = FIXED[algorithm], FIXED[algorithm]
    for label, algorithm in sorted(rows, key=lambda row: get_method_group(row[1]) not in _GROUP_COLOURS):
        if label in taken:
            continue
        free = [pair for pair in pairs if pair not in taken.values()] or pairs
        own = [pair for pair in free if pair[0] == _GROUP_COLOURS.get(get_method_group(algorithm))]
        taken[label] = (own or free)[0]
    return {
        label: CurveStyle(
            PALETTE[colour],
            DARK_PALETTE[colour],
            _PLOTLY_DASHES[dash],
            DASHES[dash],
            strong=algorithm == "fedcm" and colour == dash == FIXED["fedcm"],
        )
        for label, algorithm in rows
        for colour, dash in [taken[label]]
    }
