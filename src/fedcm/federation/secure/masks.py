"""Masks: streams of uniform 64-bit integers that are added modulo 2⁶⁴.

A seed is expanded by ChaCha20 (RFC 8439); HKDF with SHA-256 (RFC 5869) makes a seed of a secret and of what it is for.
"""

import numpy as np

SEED_BYTES = 32
_BLOCK = 2**17  # entries at a time: 1 MiB, which fits into a core's cache


def derive_seed(secret: bytes, purpose: bytes) -> bytes:
    """Return a seed of 32 bytes that depends on a secret and on its purpose."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=hashes.SHA256(), length=SEED_BYTES, salt=None, info=purpose).derive(secret)


def add_mask(vector: np.ndarray, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to a uint64 vector in place, or subtract it if `sign` is −1.

    A seed must be used for one mask only.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    if vector.dtype != np.uint64 or vector.ndim != 1:
        raise ValueError(f"a mask is added to a vector of uint64, got {vector.dtype} of {vector.ndim} dimensions")
    # the key is fresh, so nonce and counter start at 0
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
    zeros = bytes(8 * min(_BLOCK, len(vector)))
    change = np.add if sign > 0 else np.subtract
    for start in range(0, len(vector), _BLOCK):
        part = vector[start : start + _BLOCK]
        mask = np.frombuffer(stream.update(zeros[: 8 * len(part)]), dtype="<u8")
        change(part, mask, out=part)
