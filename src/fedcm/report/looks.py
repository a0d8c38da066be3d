"""The look of each row of a report: an algorithm's own colour everywhere, on light paper and on dark."""

from collections.abc import Iterable
from typing import NamedTuple

from fedcm.report.style import DASHES, FIXED, PALETTE

# the same hues, light enough for a dark page
DARK_PALETTE = ("#4DA3E6", "#F4814A", "#2EBE93", "#E3A0C8", "#F3B53F", "#8ED1F6", "#A8A8A8", "#F2F2F2")
_DASHES = ("dash", "solid", "dashdot", "dot", "longdash", "longdashdot", "2px 2px", "solid")


class Look(NamedTuple):
    light: str
    dark: str
    dash: str  # as plotly.js has it
    line: object  # as matplotlib has it
    strong: bool  # the row that a report is about


def looks(rows: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """By label, of (label, algorithm); the first row of a known algorithm has its own colour, others the next free."""
    pairs = list(dict.fromkeys(rows))
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
