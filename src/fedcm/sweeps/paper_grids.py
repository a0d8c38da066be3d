"""Where the grids of the paper's tables lie: beside the source, or inside the installed package."""

from pathlib import Path

from fedcm.errors import UserError, suggest

WHAT = {
    "table1": ("table1",),
    "table2": ("table2",),
    "table3": ("table3",),
    "figures": ("table1", "table2", "table3"),
}
_FOLDERS = {"full": "paper", "mini": "mini"}


def list_grid_files(what: str, scale: str) -> list[Path]:
    if what not in WHAT:
        raise UserError(f"there is nothing {what!r} to reproduce; {suggest(what, WHAT)}")
    if scale not in _FOLDERS:
        raise UserError(f"--scale must be mini or full, got {scale!r}")
    folder = find_experiments_folder() / _FOLDERS[scale]
    return [folder / f"{name}.toml" for name in WHAT[what]]


def find_experiments_folder() -> Path:
    here = Path(__file__).parents[1]
    for folder in (here / "experiments", here.parents[1] / "experiments"):
        if (folder / "paper").is_dir():
            return folder
    raise UserError("the bundled experiments must be beside the package, and are not; install fedcm again")
