"""The grids of the paper's tables, among the bundled experiments."""

from pathlib import Path

from fedcm.config.bundled import find_experiments_folder
from fedcm.errors import UserError, suggest

WHAT = {
    "table1": ("table1",),
    "table2": ("table2",),
    "table3": ("table3",),
    "figures": ("table1", "table2", "table3"),
}
_FOLDERS = {"full": "paper", "mini": "mini"}


def list_grid_files(what: str, scale: str) -> list[Path]:
    """Return the grid files of a table, or of all of them for `figures`.

    Args:
        what: A key of `WHAT`.
        scale: "full" or "mini".
    """
    if what not in WHAT:
        raise UserError(f"there is nothing {what!r} to reproduce; {suggest(what, WHAT)}")
    if scale not in _FOLDERS:
        raise UserError(f"--scale must be mini or full, got {scale!r}")
    folder = find_experiments_folder() / _FOLDERS[scale]
    return [folder / f"{name}.toml" for name in WHAT[what]]
