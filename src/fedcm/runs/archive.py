"""Where `--fresh` puts the runs that it runs anew: `archive/`, beside the runs, in a folder named by the time.

A run is moved there, never deleted. The archive is not searched for runs, unless somebody names it.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from fedcm.system.files import fsync_folder, write_text

_FOLDER = "archive"
_NOTE = "ARCHIVE.txt"  # tells the folder from any other of this name
_TEXT = """Runs that were here before `--fresh` ran them anew, in a folder for each time.

They are whole: `fedcm runs --runs-dir FOLDER` lists them, `fedcm report FOLDER` reports on them, and `fedcm resume RUN`
resumes one that was stopped. fedcm does not read or change them by itself.
"""


def new_archive(runs_dir: Path) -> Path:
    """A folder that is not there yet; it is made when the first run is moved to it."""
    place = next(folder for folder in _numbered(runs_dir / _FOLDER) if not folder.exists() or is_archive(folder))
    return next(folder for folder in _numbered(place / f"{datetime.now():%Y%m%d-%H%M%S}") if not folder.exists())


def move_to_archive(run: Path, archive: Path) -> Path:
    """The run's new place."""
    archive.mkdir(parents=True, exist_ok=True)
    if not is_archive(archive.parent):
        write_text(archive.parent / _NOTE, _TEXT)
    place = next(folder for folder in _numbered(archive / run.name) if not folder.exists())
    run.rename(place)
    try:
        fsync_folder(archive)
    except BaseException:
        place.rename(run)
        raise
    return place


def remove_if_empty(archive: Path) -> None:
    """After a move that was undone, or did not happen."""
    with suppress(OSError):  # another process moves a run there just now
        archive.rmdir()
        if all(file.name == _NOTE for file in archive.parent.iterdir()):
            (archive.parent / _NOTE).unlink(missing_ok=True)
            archive.parent.rmdir()


def is_archive(folder: Path) -> bool:
    return (folder / _NOTE).is_file()


def _numbered(path: Path) -> Iterator[Path]:
    """The path itself, then `-2`, `-3`, …"""
    return (path if k == 1 else path.with_name(f"{path.name}-{k}") for k in count(1))
