"""The archive: where `--fresh` moves runs before it starts new ones with their names.

It is the folder `archive/` beside the runs, with one subfolder per time. Runs are moved, never deleted. Commands search
the archive only if it is named.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from fedcm.system.files import find_free_path, fsync_folder, write_text
from fedcm.system.formatting import number_names

_FOLDER = "archive"
_NOTE = "ARCHIVE.txt"  # distinguishes the archive from another folder of this name
_TEXT = """Runs that `--fresh` replaced, in one folder per time.

They are complete: `fedcm runs --runs-dir FOLDER` lists them, `fedcm report FOLDER` reports on them,
`fedcm resume RUN` resumes a stopped one. fedcm does not read or change them otherwise.
"""


def make_archive_path(runs_dir: Path) -> Path:
    """Return a new archive folder; it is created when the first run is moved to it."""
    roots = (runs_dir / name for name in number_names(_FOLDER))
    root = next(folder for folder in roots if not os.path.lexists(folder) or is_archive(folder))
    return find_free_path(root / f"{datetime.now():%Y%m%d-%H%M%S}")


def describe_existing_runs(runs_dir: Path, names: Sequence[str]) -> str:
    """Describe the runs of these names that exist and would be moved; empty if none does."""
    existing = [runs_dir / name for name in names if (runs_dir / name / "experiment.toml").is_file()]
    if len(existing) > 1:
        return f"the {len(existing)} runs of these names in {runs_dir}"
    return "".join(map(str, existing))


def move_to_archive(run: Path, archive: Path) -> Path:
    """Move a run to the archive and return its new path."""
    archive.mkdir(parents=True, exist_ok=True)
    if not is_archive(archive.parent):
        write_text(archive.parent / _NOTE, _TEXT)
    place = find_free_path(archive / run.name)
    run.rename(place)
    try:
        fsync_folder(archive)
    except BaseException:
        place.rename(run)
        raise
    return place


def remove_if_empty(archive: Path) -> None:
    """Remove an archive folder that no run was moved to."""
    with suppress(OSError):  # another process may move a run there just now
        archive.rmdir()
        if all(file.name == _NOTE for file in archive.parent.iterdir()):
            (archive.parent / _NOTE).unlink(missing_ok=True)
            archive.parent.rmdir()


def is_archive(folder: Path) -> bool:
    """Return whether the folder is an archive of runs."""
    return (folder / _NOTE).is_file()
