"""Random words from a stream cipher: a pure function of (key, round, field, block).

The words are the keystream of ChaCha20. Without the key, nobody can tell them from uniform words, and so
nobody can subtract the noise that they become. A round that is run again after a resume draws the same words.
"""

import hashlib
from typing import final

import numpy as np

from fedcm.errors import UserError

KEY_BYTES = 32
_LEAST_WORDS = 4096  # the cipher makes many words at once much faster than few


def derive_key(seed: int) -> bytes:
    """Return the key of a simulation. It follows from the seed, so it is no secret."""
    return hashlib.sha256(f"fedcm: noise of seed {seed}".encode()).digest()


def derive_cohort_seed(key: bytes) -> int:
    """Return the seed of the cohorts of a run with a secret key: nobody may know who was drawn."""
    return int.from_bytes(hashlib.sha256(b"fedcm: cohorts of " + key).digest()[:16], "big")


@final
class KeyStream:
    """A stream of 64-bit words."""

    def __init__(self, key: bytes, round: int, field: int, block: int) -> None:
        """Start a stream; each (round, field, block) has its own.

        Raises:
            UserError: If the package `cryptography` is not installed.
        """
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        except ImportError:
            raise UserError(
                "private noise needs the package 'cryptography'; install it with `pip install 'fedcm[privacy]'`"
            ) from None
        nonce = bytes(4) + b"".join(number.to_bytes(4, "little") for number in (block, field, round))
        self._cipher = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
        self._words = np.empty(0, dtype=np.uint64)
        self._used = 0

    def draw(self, count: int) -> np.ndarray:
        """Return the next words, uint64."""
        if self._used + count > len(self._words):
            fresh = np.frombuffer(self._cipher.update(bytes(8 * max(count, _LEAST_WORDS))), dtype="<u8")
            self._words = np.concatenate([self._words[self._used :], fresh.astype(np.uint64, copy=False)])
            self._used = 0
        self._used += count
        return self._words[self._used - count : self._used]
