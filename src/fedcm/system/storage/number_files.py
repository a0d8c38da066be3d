"""Read CSV files of numbers, one row per client, such as speeds or times of availability."""

import csv
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedcm.errors import UserError


class NumberTable(NamedTuple):
    """The rows of a CSV file."""

    path: str
    columns: tuple[str, ...]
    rows: list[tuple[float | None, ...]]  # None where a cell is empty
    sha256: str  # of the file's content


def read_number_file(path: str, what: str, required: Sequence[str], optional: Sequence[str] = ()) -> NumberTable:
    """Read a CSV file with a header. Columns may be in any order; the rows have them in the order given here.

    Args:
        path: The file.
        what: What the file has, for error messages.
        required: The names of columns without empty cells.
        optional: The names of columns that may be missing, or have empty cells.

    Raises:
        UserError: If the file cannot be read, has other columns, or has a cell that is not a finite number.
    """
    try:
        content = Path(path).expanduser().read_bytes()
        lines = list(csv.reader(content.decode("utf-8-sig").splitlines(), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"the {what} {path!r} cannot be read: {reason}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    known = (*required, *optional)
    if set(required) - set(header) or set(header) - set(known) or len(set(header)) < len(header):
        more = f" and optionally {', '.join(optional)}" if optional else ""
        raise UserError(
            f"the {what} {path!r} must be a CSV file with the columns {', '.join(required)}{more}, got "
            f"{', '.join(header)[:80] or 'nothing'}"
        )
    places = [header.index(name) if name in header else None for name in known]
    rows: list[tuple[float | None, ...]] = []
    for number, cells in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise UserError(f"line {number} of the {what} {path!r} must have {len(header)} cells, got {len(cells)}")
        row = tuple(None if place is None else _read_cell(cells[place]) for place in places)
        if any(value is None for value in row[: len(required)]) or any(map(_is_wrong, row)):
            raise UserError(f"line {number} of the {what} {path!r} must have numbers, got {','.join(cells)[:80]!r}")
        rows.append(row)
    return NumberTable(path, known, rows, hashlib.sha256(content).hexdigest())


def to_whole_number(table: NumberTable, column: str, value: float, least: int = 0, below: int | None = None) -> int:
    """Return a cell as an int.

    Raises:
        UserError: If it is not a whole number in the range.
    """
    if value != int(value) or value < least or (below is not None and value >= below):
        most = "" if below is None else f" and at most {below - 1}"
        raise UserError(f"{column} in {table.path!r} must be a whole number of at least {least}{most}, got {value:g}")
    return int(value)


def _read_cell(text: str) -> float | None:
    """Return the number in a cell, None if the cell is empty, NaN if it has something else."""
    try:
        return float(text) if text.strip() else None
    except ValueError:
        return math.nan


def _is_wrong(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)
