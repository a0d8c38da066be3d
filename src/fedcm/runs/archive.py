"""The archive: where `--fresh` moves runs before it starts new ones with their names.

It is the folder `archive/` beside the runs, with one subfolder per time. Runs are moved, never deleted. Commands search
the archive only if it is named.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from fedcm.system.files import fsync_folder, write_text

_FOLDER = "archive"
_NOTE = "ARCHIVE.txt"  # distinguishes the archive from another folder of this name
_TEXT = """Runs that `--fresh` replaced, in one folder per time.

They are complete: `fedcm runs --runs-dir FOLDER` lists them, `fedcm report FOLDER` reports on them,
`fedcm resume RUN` resumes a stopped one. fedcm does not read or change them otherwise.
"""


def make_archive_path(runs_dir: Path) -> Path:
    """Return a new archive folder; it is created when the first run is moved to it."""
    root = next(folder for folder in _number_paths(runs_dir / _FOLDER) if not folder.exists() or is_archive(folder))
    return next(folder for folder in _number_paths(root / f"{datetime.now():%Y%m%d-%H%M%S}") if not folder.exists())


def move_to_archive(run: Path, archive: Path) -> Path:
    """Move a run to the archive and return its new path."""
    archive.mkdir(parents=True, exist_ok=True)
    if not is_archive(archive.parent):
        write_text(archive.parent / _NOTE, _TEXT)
    place = next(folder for folder in _number_paths(archive / run.name) if not folder.exists())
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


def _number_paths(path: Path) -> Iterator[Path]:
    """Yield the path, then the path with `-2`, `-3`, … appended."""
    return (path if k == 1 else path.with_name(f"{path.name}-{k}") for k in count(1))
