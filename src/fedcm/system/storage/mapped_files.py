"""Arrays in files that are mapped instead of copied into memory.

The pages of a mapped file count as memory from their first use, and their neighbours with them. They are released after
a round, and behind a function that reads a whole array once, such as a checksum (`iterate_pieces`). A file that is
overwritten changes the array without notice; `reject_changed_files` finds this out. A file that is replaced by another
of its name does no harm, because the array keeps the old one.
"""

import math
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from fedcm.errors import UserError

_PIECE = 2**22  # bytes


@dataclass(frozen=True)
class _File:
    """A mapped file: its path, what the system said about it then, and where it is in memory."""

    path: Path
    state: tuple[int, ...]
    address: int


_MAPPED: WeakKeyDictionary[mmap.mmap, _File] = WeakKeyDictionary()
_released = -math.inf  # when, in the seconds of `time.monotonic`


def map_array(path: Path, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Map an array from a file. What is written to the array does not reach the file.

    The array begins at any byte, so its numbers may not be aligned: copy what you compute with.

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
        state = _get_state(os.fstat(file.fileno()))
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    array = np.frombuffer(pages, dtype, int(np.prod(shape)), offset).reshape(shape)
    _MAPPED[pages] = _File(path.absolute(), state, array.ctypes.data - offset)
    return array


def is_mapped(array: np.ndarray) -> bool:
    """Return whether the array lies in a mapped file."""
    return _find_pages(array.ctypes.data) is not None


def iterate_pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Iterate over the numbers of a contiguous array in flat pieces, and release what was read of a mapped file."""
    flat, pages = array.reshape(-1), _find_pages(array.ctypes.data)
    step = max(1, _PIECE // max(1, flat.itemsize))
    for start in range(0, flat.size, step):
        piece = flat[start : start + step]
        yield piece
        if pages is not None:
            _release(pages, piece)


def release_mapped_files() -> None:
    """Release all pages of mapped files, at most once per second; they are read again if they are needed."""
    global _released
    if not _MAPPED or time.monotonic() < _released + 1:
        return
    _released = time.monotonic()
    for pages in list(_MAPPED):
        if hasattr(pages, "madvise"):  # not on every system
            pages.madvise(mmap.MADV_DONTNEED)


def reject_changed_files() -> None:
    """Raise UserError if a mapped file was overwritten, because the arrays in it have changed with it."""
    for file in list(_MAPPED.values()):
        try:
            state = _get_state(file.path.stat())
        except OSError:
            continue  # deleted: the system keeps it as long as it is mapped
        if state[:2] == file.state[:2] and state != file.state:
            raise UserError(
                f"{str(file.path)!r} was overwritten while its data were in use, so this round is not recorded; resume "
                "the run with the file as it was, or start a new run (a file that is replaced by renaming another does "
                "no harm)"
            )


def _get_state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _find_pages(address: int) -> mmap.mmap | None:
    for pages, file in list(_MAPPED.items()):
        if file.address <= address < file.address + len(pages):
            return pages
    return None


def _release(pages: mmap.mmap, piece: np.ndarray) -> None:
    """Release the pages of a piece; if they are needed again, the system reads them from the file."""
    if not hasattr(pages, "madvise"):  # not on every system
        return
    first = piece.ctypes.data - _MAPPED[pages].address
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, start, first + piece.nbytes - start)
