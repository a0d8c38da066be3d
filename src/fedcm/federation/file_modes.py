"""Keep the files of a kit private: only their owner may read them, whatever the umask of the shell.

Two things make them so. All files that a federation's processes write are made under a strict umask, which the engine
and its jobs inherit. And when a kit is served, older files in it are made private too, also if `state/` or `runs/` is a
link to another disk. A private key that others could read is not repaired but rejected, because they may have read it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fedcm.errors import UserError
from fedcm.federation.kit import RUNS, STATES
from fedcm.system.formatting import format_count

_UMASK = 0o077
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class RepairedModes(NamedTuple):
    """The files and folders that others could read, and cannot any more; and those of another owner."""

    repaired: list[Path]
    foreign: list[Path]  # only their owner can change their modes

    @property
    def sentence(self) -> str:
        """What the operator should know; empty if nothing was wrong."""
        parts = []
        if self.repaired:
            parts.append(f"{_describe(self.repaired)} could be read by others, and now only by the owner")
        if self.foreign:
            parts.append(f"{_describe(self.foreign)} can be read by others and must be made private by the owner")
        return "; ".join(parts)


@contextmanager
def private_files() -> Iterator[None]:
    """Files and folders that this process makes in the block are private, and those of processes that it starts."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def list_exposed(kit: Path) -> list[Path]:
    """Return the kit's folder, and the files and folders in it, that group or others may use.

    Links are skipped, except for those to the folders of runs and client states.
    """
    return [path for path in _walk(kit) if _read_mode(path) & _OTHERS]


def reject_exposed_keys(kit: Path) -> None:
    """Raise a UserError if a private key in the kit can be read by others."""
    for path in list_exposed(kit):
        if path.suffix == ".key" and path.is_file():
            raise UserError(describe_exposed_key(path))


def describe_exposed_key(key: Path) -> str:
    """Say that others can read a private key, and what to do."""
    return (
        f"only its owner may read the private key {str(key)!r}, but its mode is {_read_mode(key):o}; run `chmod 600 "
        f"{key}`, and if others use this machine, renew the kit with `fedcm federation renew`"
    )


def reject_exposed_states(kit: Path) -> None:
    """Raise a UserError if others can read runs or client states, because only another user could make them private."""
    for path in list_exposed(kit):
        if path != kit and any(folder in (path, *path.parents) for folder in _list_secret_folders(kit)):
            raise UserError(
                f"only its owner may read {str(path)!r}, but its mode is {_read_mode(path):o} and another user owns "
                f"it; run `chmod -R go= {path}` as its owner, or serve the kit as that user"
            )


def make_private(kit: Path) -> RepairedModes:
    """Take all rights of group and others from the files and folders of a kit."""
    repaired, foreign = [], []
    for path in list_exposed(kit):
        try:
            path.chmod(_read_mode(path) & ~_OTHERS)
            repaired.append(path)
        except PermissionError:
            foreign.append(path)
        except FileNotFoundError:  # the engine removes its temporary files
            continue
    return RepairedModes(repaired, foreign)


def _walk(kit: Path) -> Iterator[Path]:
    elsewhere = [folder.resolve() for folder in _list_secret_folders(kit) if folder.is_symlink() and folder.is_dir()]
    for top in (kit, *elsewhere):
        yield top
        for folder, inner, files in os.walk(top):
            yield from (path for name in (*inner, *files) if not (path := Path(folder, name)).is_symlink())


def _list_secret_folders(kit: Path) -> list[Path]:
    """Return the folders of runs and client states: in the kit, and where links lead."""
    own = [kit / RUNS, kit / STATES]
    return own + [folder.resolve() for folder in own if folder.is_symlink()]


def _read_mode(path: Path) -> int:
    with suppress(OSError):
        return stat.S_IMODE(path.lstat().st_mode)
    return 0


def _describe(paths: list[Path]) -> str:
    """
    >>> _describe([Path("kit/log.txt"), Path("kit/runs")])
    '2 files and folders of the kit (log.txt, runs)'
    """
    names = ", ".join(path.name for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    return f"{format_count(len(paths), 'file or folder', 'files and folders')} of the kit ({names})"
