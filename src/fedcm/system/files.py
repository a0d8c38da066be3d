"""Files that are there whole or not at all: written beside their place, flushed to the disk, then renamed into it.

A crash, a full disk or a second writer leaves the old file or the new one, never half of one.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder: it becomes `path` when the block ends well and is removed when it does not.

    The temporary name is hidden and keeps the suffix, so that whoever chooses a format by it chooses the right one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}{path.suffix}")
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # some writers make their files private
        fsync_file(temporary)
        temporary.replace(path)
        fsync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # of a full disk the system does not say where
        raise


def write_bytes(path: Path, data: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def fsync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk rather than in the system's memory."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def fsync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
