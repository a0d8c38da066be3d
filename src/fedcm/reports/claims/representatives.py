"""Which rows represent an algorithm in a cell where it has several. It is never the row with the best test score.

While more than one row is left, these rules narrow them down, in this order:
1. rows with a published figure, because their settings were declared
2. the row with the best score on validation data, if all rows have one: its settings were tuned
3. rows that are in the most cells
4. rows of FedCM with its default α
Each row that is left represents the algorithm by itself. A row of FedCM is compared with the rows of another algorithm
that have the same settings, apart from the algorithm's own; if there are none, with all rows that represent it.
"""

from collections.abc import Callable

from fedcm.reports.claims.paper import DEFAULT_ALPHA
from fedcm.reports.differences import list_method_settings
from fedcm.reports.groups import Group, ResultRow

FEDCM = "fedcm"


def list_representatives(group: Group, cell: str, algorithm: str) -> list[ResultRow]:
    """Return the rows that represent an algorithm in a cell."""
    rows = _list_comparable_rows(group, cell, algorithm)
    rows = _narrow(rows, lambda row: row.entries[cell].published is not None)
    rows = _keep_best_on_validation(rows, cell)
    widest = max((len(row.entries) for row in rows), default=0)
    rows = _narrow(rows, lambda row: len(row.entries) == widest)
    return _narrow(rows, lambda row: _has_default_alpha(row, cell)) if algorithm == FEDCM else rows


def list_rivals(group: Group, cell: str, algorithm: str, own: ResultRow) -> list[ResultRow]:
    """Return the rows of another algorithm that a row of FedCM is compared with."""
    settings = _list_shared_settings(own, cell)
    rows = _list_comparable_rows(group, cell, algorithm)
    alike = [row for row in rows if _list_shared_settings(row, cell) == settings]
    return alike or list_representatives(group, cell, algorithm)


def list_other_algorithms(group: Group, cell: str) -> list[str]:
    """Return the algorithms with a comparable row in the cell, without FedCM and decentralised algorithms."""
    rows = [row for row in group.rows if _is_comparable(row, cell)]
    return [name for name in dict.fromkeys(row.algorithm for row in rows) if name != FEDCM]


def _narrow(rows: list[ResultRow], rule: Callable[[ResultRow], bool]) -> list[ResultRow]:
    return [row for row in rows if rule(row)] or rows


def _keep_best_on_validation(rows: list[ResultRow], cell: str) -> list[ResultRow]:
    gains = {row.label: row.entries[cell].validation_gain() for row in rows}
    known = [gain for gain in gains.values() if gain is not None]
    return [row for row in rows if gains[row.label] == max(known)] if known and len(known) == len(rows) else rows


def _list_comparable_rows(group: Group, cell: str, algorithm: str) -> list[ResultRow]:
    return [row for row in group.rows if row.algorithm == algorithm and _is_comparable(row, cell)]


def _is_comparable(row: ResultRow, cell: str) -> bool:
    """Return whether a row has a result that the paper's claims, which are about methods with a server, may use."""
    entry = row.entries.get(cell)
    return entry is not None and entry.is_comparable and not any(run.is_decentralised for run in entry.runs)


def _has_default_alpha(row: ResultRow, cell: str) -> bool:
    return row.entries[cell].runs[0].experiment["algorithm"].get("alpha") == DEFAULT_ALPHA


def _list_shared_settings(row: ResultRow, cell: str) -> dict[str, str]:
    settings = list_method_settings(row.entries[cell].runs[0])
    return {path: text for path, text in settings.items() if not path.startswith("algorithm.")}
