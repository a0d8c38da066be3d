"""Arrays in files that are mapped instead of copied into memory.

The pages of a mapped file count as memory from their first use, and their neighbours with them: Linux may map two
megabytes for one example. Therefore `read_rows` reads long rows from the file instead of the mapped pages. Other pages
are released after the local steps of a round, and behind a function that reads a whole array once, such as a checksum
(`iterate_pieces`).

A file that is overwritten changes the array, which `reject_changed_file` detects. A file that is shortened ends the
process that reads mapped pages of it (SIGBUS). A file that is deleted, or replaced by another of its name, does no
harm: the system keeps it as long as it is mapped.
"""

import math
import mmap
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from fedcm.errors import UserError

_PIECE = 2**22  # bytes
_LONG = 4096  # bytes of a row, from which on a system call costs little beside its copy
_PAUSE = 1.0  # seconds between two releases, because a release takes some milliseconds


@dataclass(frozen=True)
class _File:
    """A mapped file."""

    path: Path
    descriptor: int
    state: tuple[int, int]  # its size and its time of change when it was mapped
    address: int  # in memory


_MAPPED: WeakKeyDictionary[mmap.mmap, _File] = WeakKeyDictionary()
_LOCK = threading.Lock()
_released = -math.inf  # the time of the last release


def map_array(path: Path, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Map an array from a file.

    The array begins at any byte, so its numbers may not be aligned: copy what you compute with, because some kernels
    give other bits otherwise. Do not write to it: what was written is lost when pages are released.

    Args:
        path: The file.
        offset: Where the array begins in it.
        dtype: The type of its numbers.
        shape: Its shape; the last index changes fastest.

    Raises:
        OSError: If the file cannot be mapped.
        ValueError: If the file ends before the array does.
    """
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        descriptor = os.dup(file.fileno())
    weakref.finalize(pages, os.close, descriptor)
    array = np.frombuffer(pages, dtype, int(np.prod(shape)), offset).reshape(shape)
    with _LOCK:
        _MAPPED[pages] = _File(path, descriptor, _get_state(descriptor), array.ctypes.data - offset)
    return array


def is_mapped(array: np.ndarray) -> bool:
    """Return whether the array is stored in a mapped file."""
    return _find_file(array) is not None


def iterate_pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Iterate over the numbers of a contiguous array in flat pieces, and release what was read of a mapped file."""
    flat, found = array.reshape(-1), _find_file(array)
    step = max(1, _PIECE // max(1, flat.itemsize))
    for start in range(0, flat.size, step):
        piece = flat[start : start + step]
        yield piece
        if found is not None:
            pages, file = found
            first = piece.ctypes.data - file.address
            begin = first // mmap.PAGESIZE * mmap.PAGESIZE
            _release(pages, begin, first + piece.nbytes - begin)


def read_rows(array: np.ndarray, rows: Sequence[int], target: np.ndarray) -> bool:
    """Read rows of an array in a mapped file without touching its mapped pages.

    Args:
        array: The contiguous array.
        rows: The rows to read.
        target: Where to write them: a contiguous array of `len(rows)` rows of the same shape and type.

    Returns:
        Whether the rows were read. Nothing happens if the array is not in a mapped file, or if its rows are so short
        that selecting them from the mapped pages is faster.

    Raises:
        UserError: If the file was shortened.
    """
    length = array[:1].nbytes
    if length < _LONG or not hasattr(os, "preadv") or (found := _find_file(array)) is None:
        return False
    file = found[1]
    begin, content = array.ctypes.data - file.address, target.reshape(-1).view(np.uint8).data
    for place, row in enumerate(rows):
        piece = content[place * length : (place + 1) * length]
        if os.preadv(file.descriptor, [piece], begin + row * length) != length:
            raise _make_error(file)
    return True


def release_mapped_files() -> None:
    """Release all pages of mapped files, at most once per second; they are read again if they are needed."""
    global _released
    if not _MAPPED or time.monotonic() < _released + _PAUSE:
        return
    _released = time.monotonic()
    for pages, _ in _list_mapped():
        _release(pages, 0, len(pages))


def reject_changed_file(array: np.ndarray) -> None:
    """Raise UserError if the array is stored in a file that was overwritten after it was mapped."""
    found = _find_file(array)
    if found is not None and _get_state(found[1].descriptor) != found[1].state:
        raise _make_error(found[1])


def _make_error(file: _File) -> UserError:
    return UserError(
        f"{str(file.path)!r} was overwritten while a run was using it; restore the file and resume the run, or start a "
        "new one"
    )


def _get_state(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def _list_mapped() -> list[tuple[mmap.mmap, _File]]:
    with _LOCK:
        return list(_MAPPED.items())


def _find_file(array: np.ndarray) -> tuple[mmap.mmap, _File] | None:
    address = array.ctypes.data
    for pages, file in _list_mapped():
        if file.address <= address < file.address + len(pages):
            return pages, file
    return None


def _release(pages: mmap.mmap, start: int, length: int) -> None:
    if hasattr(pages, "madvise"):  # not on every system
        pages.madvise(mmap.MADV_DONTNEED, start, length)
