"""Which rows speak for an algorithm in a cell where it has several; never the one that did best on the test data.

In this order, as long as more than one is left:
1. rows with a published figure: these settings were declared
2. rows in the most cells
3. of FedCM, rows with its default α
All rows that are then left speak, each by itself. Against a row of FedCM stand the rows of another algorithm with the
same settings, the algorithm's own aside, or if there are none those that speak for it, every one of which it must beat.
"""

from collections.abc import Callable

from fedcm.reports.claims.paper import DEFAULT_ALPHA
from fedcm.reports.differences import of_method
from fedcm.reports.groups import Group, Row

HERO = "fedcm"


def list_speakers(group: Group, cell: str, algorithm: str) -> list[Row]:
    rows = _list_judged(group, cell, algorithm)
    rows = _narrow(rows, lambda row: row.entries[cell].published is not None)
    widest = max((len(row.entries) for row in rows), default=0)
    rows = _narrow(rows, lambda row: len(row.entries) == widest)
    return _narrow(rows, lambda row: _has_default_alpha(row, cell)) if algorithm == HERO else rows


def _narrow(rows: list[Row], rule: Callable[[Row], bool]) -> list[Row]:
    return [row for row in rows if rule(row)] or rows


def list_rivals(group: Group, cell: str, algorithm: str, own: Row) -> list[Row]:
    """The rows of another algorithm that a row of FedCM is compared with."""
    wanted = _read_surroundings(own, cell)
    alike = [row for row in _list_judged(group, cell, algorithm) if _read_surroundings(row, cell) == wanted]
    return alike or list_speakers(group, cell, algorithm)


def list_algorithms(group: Group, cell: str) -> list[str]:
    """Those with a judged row in the cell, FedCM aside."""
    found = dict.fromkeys(row.algorithm for row in group.rows if cell in row.entries and row.entries[cell].judged)
    return [name for name in found if name != HERO]


def _list_judged(group: Group, cell: str, algorithm: str) -> list[Row]:
    rows = [row for row in group.rows if row.algorithm == algorithm and cell in row.entries]
    return [row for row in rows if row.entries[cell].judged]


def _has_default_alpha(row: Row, cell: str) -> bool:
    return row.entries[cell].runs[0].experiment["algorithm"].get("alpha") == DEFAULT_ALPHA


def _read_surroundings(row: Row, cell: str) -> dict[str, str]:
    settings = of_method(row.entries[cell].runs[0])
    return {path: text for path, text in settings.items() if not path.startswith("algorithm.")}
