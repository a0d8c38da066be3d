"""The cells of tables that a run belongs to.

A run that several sweeps use belongs to the tables of all. Its experiment has the first cell; `cells.json` in its
folder has the others.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcm.system.files import write_text

_FILE = "cells.json"
Cell = dict[str, Any]  # labels, and perhaps a published figure


def read_cells(run: Path) -> list[Cell]:
    """Return the further cells of a run; none if there is no readable file."""
    try:
        cells = json.loads((run / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [cell for cell in cells if _is_valid(cell)] if isinstance(cells, list) else []


def add_cell(run: Path, own: Cell, cell: Cell) -> None:
    """Add a cell to a run. A folder that cannot be written stays unchanged.

    Args:
        run: The run's folder.
        own: The first cell, which its experiment has.
        cell: The cell to add.
    """
    cells = read_cells(run)
    if cell != own and cell not in cells:
        with suppress(OSError):
            write_text(run / _FILE, json.dumps([*cells, cell], indent=2) + "\n")


def _is_valid(cell: object) -> bool:
    if not isinstance(cell, dict) or not set(cell) <= {"labels", "published"}:
        return False
    labels, published = cell.get("labels", {}), cell.get("published", 0.0)
    texts = isinstance(labels, dict) and all(isinstance(text, str) for text in labels.values())
    return texts and isinstance(published, int | float)
