"""A part of a small archive that came from outside: read up to a limit, whatever the archive says of itself."""

import zipfile

LARGEST = 100_000  # bytes; the parts have two thousand


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{name} has more than {LARGEST} bytes")
    return content
