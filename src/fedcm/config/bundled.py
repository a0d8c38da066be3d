"""The experiments that come with fedcm, by name: `demo`, `cifar10-lenet`, `mini/table1`, `paper/table1`, …"""

import re
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fedcm.errors import UserError, suggest
from fedcm.system.formatting import describe_value


class BundledExperiment(NamedTuple):
    """One bundled experiment: its name, its file and what it is about."""

    name: str
    path: Path
    title: str


def find_experiments_folder() -> Path:
    """Return the folder of the bundled experiments: in the installed package, or beside the source.

    Raises:
        UserError: If the package was installed without them.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "experiments", package.parents[1] / "experiments"):
        if (folder / "demo.toml").is_file():
            return folder
    raise UserError("the bundled experiments are missing from the package; install fedcm again")


def list_experiments() -> list[BundledExperiment]:
    """Return the bundled experiments, the simple ones first."""
    folder = find_experiments_folder()
    paths = sorted(folder.rglob("*.toml"), key=lambda path: (len(path.relative_to(folder).parts), path))
    return [BundledExperiment(_make_name(path, folder), path, _read_title(path)) for path in paths]


def find_experiment(path: str | PathLike[str]) -> Path:
    """Return the file of an experiment, given a path or the name of a bundled one.

    Raises:
        UserError: If it is neither.
    """
    if not isinstance(path, str | PathLike):
        raise UserError(f"an experiment must be an Experiment, a TOML file or a name, got {describe_value(path)}")
    given = Path(path)
    if given.suffix == ".toml":
        _reject_missing_copy(given)
        return given
    bundled = {one.name: one.path for one in list_experiments()}
    if _exists(given) and not (given.is_dir() and str(path) in bundled):  # a folder may be called "demo" too
        return given
    if str(path) not in bundled:
        raise UserError(
            f"there is no experiment {str(path)!r}: no file has this name, and no bundled experiment "
            f"(`fedcm experiments` lists them); {suggest(str(path), bundled)}"
        )
    return bundled[str(path)]


def _reject_missing_copy(path: Path) -> None:
    """Raise a UserError if there is no such file, but a bundled experiment of this name."""
    name = path.with_suffix("").as_posix().removeprefix("experiments/")
    bundled = next((one for one in list_experiments() if one.name == name), None)
    if bundled is not None and not _exists(path):
        command = "compare" if has_grid(bundled.path) else "run"
        raise UserError(
            f"there is no experiment {str(path)!r}, but a bundled experiment has this name; run it with "
            f"`fedcm {command} {name}`"
        )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, for example
        return False


def has_grid(path: Path) -> bool:
    """Return whether an experiment file has a `[grid]`, so that it describes many runs.

    Raises:
        UserError: If the file cannot be read.
    """
    from fedcm.config.overrides import read_table  # here, so that finding an experiment loads nothing heavy

    return "grid" in read_table(path)


def _make_name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def _read_title(path: Path) -> str:
    """Return the beginning of the file's first comment, up to a full stop, colon or semicolon."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return re.split(r"[.:;](?: |$)", first.lstrip("# "))[0] if first.startswith("#") else ""
