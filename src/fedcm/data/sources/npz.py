"""Read `.npz` files. Large arrays that are not compressed are mapped, because a copy would take time and memory."""

import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from fedcm.errors import UserError
from fedcm.system.files import find_wrong_kind
from fedcm.system.storage.mapped_files import iterate_pieces, map_array

_LARGE = 2**24  # bytes
_HEADER = struct.Struct("<26xHH")  # of a zip member: it ends with the lengths of the name and of the extra field


def read_npz(path: Path, mapped: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz` file.

    Args:
        path: The file.
        mapped: The arrays that are mapped if they are large and not compressed. Their numbers may not be aligned.

    Raises:
        UserError: If the file cannot be used.
    """
    if wrong := find_wrong_kind(path.absolute()):
        raise UserError(f"{wrong}; give an .npz file, or the folder of one .npz file per client")
    if not path.is_file():
        raise UserError(f"there must be an .npz file at {str(path.absolute())!r}, but there is none")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise UserError(
                f"{str(path)!r} must be an .npz file with named arrays, got a single array; write it with numpy.savez"
            )
        with loaded:
            return {key: _read_member(loaded, key, path, may_map=key in mapped) for key in loaded.files}
    except (OSError, EOFError, MemoryError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{str(path)!r} cannot be read as an .npz file; write it with numpy.savez ({_get_first_line(error)})"
        ) from error


def _read_member(archive: np.lib.npyio.NpzFile, key: str, path: Path, *, may_map: bool) -> np.ndarray:
    assert archive.zip is not None
    if may_map and (array := _map_member(archive.zip, f"{key}.npy", path)) is not None:
        return array
    try:
        array = archive[key]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{str(path)!r}: {key!r} must be an array of numbers, got Python objects, which are never loaded "
                "because loading them can run code"
            ) from error
        raise
    if not isinstance(array, np.ndarray):
        raise UserError(f"{str(path)!r} must contain arrays only, got the file {key!r}")
    return array


def _map_member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray | None:
    """Map an array, and check its CRC. Returns None if it must be read."""
    member = archive.NameToInfo.get(name)
    if member is None or name.removesuffix(".npy") in archive.NameToInfo or member.file_size < _LARGE:
        return None
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    archive.open(member).close()  # rejects an encrypted member and an unusable local header
    with path.open("rb") as file:
        file.seek(member.header_offset)
        begin = member.header_offset + _HEADER.size + sum(_HEADER.unpack(file.read(_HEADER.size)))
        file.seek(begin)
        if np.lib.format.read_magic(file) != (1, 0):
            return None
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        head = file.tell() - begin
        file.seek(begin)
        crc = zlib.crc32(file.read(head))
    if is_fortran or dtype.hasobject or head + dtype.itemsize * int(np.prod(shape)) != member.file_size:
        return None
    try:
        array = map_array(path, begin + head, dtype, shape)
    except OSError:  # no memory to map it, or a system that does not map files
        return None
    for piece in iterate_pieces(array):
        crc = zlib.crc32(piece.view(np.uint8).data, crc)
    if crc != member.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {name!r}")
    return array


def _get_first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
