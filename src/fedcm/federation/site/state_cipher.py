"""Encrypt client states on a site's disk, with AES-256-GCM and a key that the operator keeps in a file.

A file is a mark, the id of the key, and pieces with a random nonce each. What is authenticated includes the run, the
client, the round and the number of the piece. So a file that was changed, or moved to the place of another one, is
rejected.
"""

import hashlib
import os
import secrets
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedcm.errors import UserError
from fedcm.federation.kit import SITE_FILE

if TYPE_CHECKING:  # the command that serves a kit reads the key and needs no torch
    from fedcm.federation.settings import SiteStorageSection

KEY_BYTES = 32
_MARK = b"fedcm sealed state 1\n"
_ID_BYTES, _NONCE_BYTES, _TAG_BYTES = 8, 12, 16
_PIECE = 2**28  # bytes; one call encrypts less than 2 GiB
_ADVICE = f"make one with `head -c {KEY_BYTES} /dev/urandom > FILE; chmod 600 FILE`, and keep a copy in another place"


class StateName(NamedTuple):
    """Which state a file holds."""

    run: str
    client: int
    round: int


class UnreadableState(ValueError):  # noqa: N818
    """A sealed state cannot be opened; the message says why."""


def read_state_key(kit: Path, name: str) -> bytes:
    """Read the key file that `storage.key` of `site.toml` names, relative to the kit.

    Raises:
        UserError: If there is no such file, others can read it, or it has another size.
    """
    path = kit / name
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UserError(
                f"only its owner may read the key {str(path)!r} (storage.key in {SITE_FILE}), but its mode is "
                f"{mode:o}; run `chmod 600 {path}`, and use a new key if others may have read it"
            )
        key = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"storage.key in {SITE_FILE} must name the key file of the client states, but {str(path)!r} cannot be read "
            f"({error.strerror}); restore it, because encrypted states are lost without it, or {_ADVICE}"
        ) from None
    if len(key) != KEY_BYTES:
        raise UserError(
            f"the key {str(path)!r} (storage.key in {SITE_FILE}) must have {KEY_BYTES} bytes, got {len(key)}; restore "
            f"it, or {_ADVICE}"
        )
    return key


def open_cipher(kit: Path, storage: "SiteStorageSection") -> "StateCipher | None":
    """Return the cipher of a site's states; None if they are not encrypted."""
    return None if storage.key is None else StateCipher(read_state_key(kit, storage.key))


@final
class StateCipher:
    """Seals and opens client states."""

    def __init__(self, key: bytes) -> None:
        """Use a key of 32 bytes."""
        self._cipher = AESGCM(key)
        self._id = hashlib.sha256(b"fedcm id of a state key\n" + key).digest()[:_ID_BYTES]

    def seal(self, data: bytes, name: StateName) -> bytes:
        """Return the encrypted file of a state."""
        parts = [_MARK, self._id]
        starts = range(0, max(len(data), 1), _PIECE)
        for number, start in enumerate(starts):
            nonce = secrets.token_bytes(_NONCE_BYTES)
            bound = _bind(name, number, len(starts))
            parts += [nonce, self._cipher.encrypt(nonce, data[start : start + _PIECE], bound)]
        return b"".join(parts)

    def open(self, sealed: bytes, name: StateName) -> bytes:
        """Return the state of an encrypted file.

        Raises:
            UnreadableState: If it was sealed with another key, for another name, or was changed.
        """
        if not is_sealed(sealed):
            raise UnreadableState("it is not the file of an encrypted state")
        if sealed[len(_MARK) :][:_ID_BYTES] != self._id:
            raise UnreadableState("it was encrypted with another key than storage.key")
        body = memoryview(sealed)[len(_MARK) + _ID_BYTES :]
        step = _NONCE_BYTES + _PIECE + _TAG_BYTES
        starts, parts = range(0, max(len(body), 1), step), []
        try:
            for number, start in enumerate(starts):
                piece = body[start : start + step]
                bound = _bind(name, number, len(starts))
                parts.append(self._cipher.decrypt(bytes(piece[:_NONCE_BYTES]), piece[_NONCE_BYTES:], bound))
        except (InvalidTag, ValueError):
            raise UnreadableState("it was changed, or is of another run, site or round") from None
        return b"".join(parts)


def is_sealed(data: bytes) -> bool:
    """Return whether these are the bytes of an encrypted state."""
    return data.startswith(_MARK)


def _bind(name: StateName, number: int, pieces: int) -> bytes:
    numbers = struct.pack("<QQQQ", name.client, name.round, number, pieces)
    return b"\n".join((_MARK, os.fsencode(name.run), numbers))
