"""Write files atomically: to a temporary file, flushed to the disk, then renamed.

After a crash, a full disk or a second writer there is the old file or the new one, never a part of one.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from fedcm.system.formatting import number_names


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it to `path` if the block succeeds.

    If the block raises, the temporary file is removed. It is in the same folder, hidden, and has the same suffix, so
    that writers which choose a format by the suffix choose the right one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}{path.suffix}")
    try:
        yield temporary
        temporary.chmod(0o666 & ~read_umask())  # some writers make their files private
        fsync_file(temporary)
        temporary.replace(path)
        fsync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # the error of a full disk does not name the file
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically; missing folders are created."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def find_free_path(path: Path) -> Path:
    """Return `path`, or the first of `path-2`, `path-3`, … that does not exist; a dangling link exists."""
    candidates = (path.with_name(name) for name in number_names(path.name))
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))


def find_wrong_kind(path: Path, kind: Literal["file", "folder"] = "file") -> str:
    """Say why something that exists is not a file, or not a folder; empty if it is one, or nothing is there.

    >>> find_wrong_kind(Path("/"))
    "'/' must be a file, and it is a folder"
    """
    if (path.is_file() if kind == "file" else path.is_dir()) or not os.path.lexists(path):
        return ""
    if not path.exists():
        found = f"a link to {str(path.readlink())!r}, which does not exist"
    else:
        found = "a folder" if path.is_dir() else "a file" if path.is_file() else "neither a file nor a folder"
    return f"{str(path)!r} must be a {kind}, and it is {found}"


def write_text(path: Path, text: str) -> None:
    """Write text atomically as UTF-8; missing folders are created."""
    write_bytes(path, text.encode("utf-8"))


def fsync_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_locked(lock: Path) -> bool:
    """Return whether a process holds an exclusive `flock` on the file; the file is not changed or created."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_umask() -> int:
    """Return the umask of this process.

    On Linux the kernel is asked. Elsewhere the only way is to change it for a moment, in which another thread could
    make a file with other rights.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
    except (OSError, StopIteration, ValueError, IndexError):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
