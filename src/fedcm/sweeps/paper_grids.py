"""The grids of the paper's tables, among the bundled experiments."""

from pathlib import Path

from fedcm.config.bundled import find_experiments_folder
from fedcm.errors import UserError, suggest

GRIDS_OF_TARGET = {
    "table1": ("table1",),
    "table2": ("table2",),
    "table3": ("table3",),
    "figures": ("table1", "table2", "table3"),
}
_FOLDERS = {"full": "paper", "mini": "mini"}


def list_grid_files(target: str, scale: str) -> list[Path]:
    """Return the grid files of a table, or of all of them for `figures`.

    Args:
        target: A key of `GRIDS_OF_TARGET`.
        scale: "full" or "mini".

    Raises:
        UserError: If there is no such table or scale.
    """
    if target not in GRIDS_OF_TARGET:
        raise UserError(f"there is nothing {target!r} to reproduce; {suggest(target, GRIDS_OF_TARGET)}")
    if scale not in _FOLDERS:
        raise UserError(f"scale must be mini or full, got {scale!r}")
    folder = find_experiments_folder() / _FOLDERS[scale]
    return [folder / f"{name}.toml" for name in GRIDS_OF_TARGET[target]]
