"""Search a folder for secrets, as somebody with a copy of a disk would: in all files, and in what is packed in them."""

import base64
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

RUN = 3  # consecutive numbers of a vector that are no coincidence


def read_everything(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of every file, and of every file in an archive, at any depth."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield from _unpack(str(path.relative_to(folder)), path.read_bytes())


def _unpack(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for inner in archive.namelist():
                yield from _unpack(f"{name}:{inner}", archive.read(inner))


def holds_vector(data: bytes, vector: np.ndarray) -> bool:
    """Return whether three consecutive numbers of a vector, none of them 0, are anywhere in the data."""
    width = vector.dtype.itemsize
    words = np.ascontiguousarray(vector).view(f"<u{width}")
    starts = [i for i in range(len(words) - RUN + 1) if np.count_nonzero(vector[i : i + RUN]) == RUN]
    firsts = np.unique(words[starts])
    for offset in range(width):
        found = np.frombuffer(data, f"<u{width}", (len(data) - offset) // width, offset) if len(data) > offset else []
        for place in np.flatnonzero(np.isin(found, firsts)):
            run = np.asarray(found)[place : place + RUN]
            if any(np.array_equal(run, words[start : start + RUN]) for start in starts):
                return True
    return False


def holds_secret(data: bytes, secret: bytes) -> bool:
    """Return whether a secret is anywhere in the data: its bytes, or as text."""
    return any(
        form in data for form in (secret, secret.hex().encode(), secret.hex().upper().encode(), *_encode(secret))
    )


def _encode(secret: bytes) -> Iterator[bytes]:
    """Yield what every base64 of text that contains the secret contains, wherever the secret begins in it."""
    for shift in range(3):
        whole = base64.b64encode(bytes(shift) + secret)
        yield whole[-(-shift * 4 // 3) + (shift > 0) : -4]
