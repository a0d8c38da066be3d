"""The look of each row of a report: an algorithm's own colour everywhere, on light paper and on dark."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedcm.reports.figures.style import DASHES, FIXED, PALETTE

# the same hues, light enough for a dark page
DARK_PALETTE = ("#4DA3E6", "#F4814A", "#2EBE93", "#E3A0C8", "#F3B53F", "#8ED1F6", "#A8A8A8", "#F2F2F2")
# of a sweep's rows
RAMP = ("#0D0887", "#5302A3", "#8B0AA5", "#B83289", "#DB5C68", "#F48849", "#D9A400")
DARK_RAMP = ("#7C8CFF", "#9B7BFF", "#C26BE6", "#E667B0", "#FF7F86", "#FFA05C", "#FFD24A")
_DASHES = ("dash", "solid", "dashdot", "dot", "longdash", "longdashdot", "2px 2px", "solid")


class Look(NamedTuple):
    light: str
    dark: str
    dash: str  # as plotly.js has it
    line: object  # as matplotlib has it
    strong: bool  # the row that a report is about


def looks(rows: Iterable[tuple[str, str, int]]) -> dict[str, Look]:
    """By label, of (label, algorithm, cells). A known algorithm has its own colour in its row without brackets, or
    else in the one in the most cells. Three rows or more beside it, of one algorithm alone, are a sweep, from dark to
    bright; others have the next free colour."""
    of: dict[str, dict[str, int]] = {}
    for label, algorithm, cells in sorted(rows, key=lambda row: (_of_a_setting(row[0]), -row[2])):
        of.setdefault(algorithm, {}).setdefault(label, cells)
    sweeps = [beside for own in of.values() if len(beside := _beside_the_leading(own)) > 2]
    swept = _ramp(sorted(sweeps[0], key=_in_order)) if len(sweeps) == 1 else {}
    alone = [(label, algorithm) for algorithm, own in of.items() for label in own if label not in swept]
    return _one_by_one(alone) | swept


def _beside_the_leading(own: dict[str, int]) -> list[str]:
    first, *others = own
    leads = not others or not _of_a_setting(first) or own[first] > own[others[0]]
    return others if leads else [first, *others]


def _of_a_setting(label: str) -> bool:
    return label.endswith(")")


def _in_order(label: str) -> tuple[float, str]:
    """Rows that differ in a number, by it."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", label)
    return (float(numbers[-1]) if numbers else 0.0), label


def _ramp(labels: Sequence[str]) -> dict[str, Look]:
    found = {}
    for k, label in enumerate(labels):
        colour = round(k * (len(RAMP) - 1) / (len(labels) - 1))
        found[label] = Look(RAMP[colour], DARK_RAMP[colour], _DASHES[k % 4], DASHES[k % 4], strong=False)
    return found


def _one_by_one(pairs: Sequence[tuple[str, str]]) -> dict[str, Look]:
    taken = {FIXED[algorithm] for _, algorithm in pairs if algorithm in FIXED}
    free = [k for k in range(len(PALETTE)) if k not in taken] or list(range(len(PALETTE)))
    found: dict[str, Look] = {}
    first: set[str] = set()
    spare = 0
    for label, algorithm in pairs:
        if algorithm in FIXED and algorithm not in first:
            colour = dash = FIXED[algorithm]
            first.add(algorithm)
        else:
            colour, dash = free[spare % len(free)], (free[spare % len(free)] + spare // len(free)) % len(PALETTE)
            spare += 1
        strong = algorithm == "fedcm" and dash == FIXED["fedcm"]
        found[label] = Look(PALETTE[colour], DARK_PALETTE[colour], _DASHES[dash], DASHES[dash], strong)
    return found
