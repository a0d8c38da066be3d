"""The secret key of a run's noise: 32 random bytes in the run's folder, which only its owner can read.

Anyone with the key can subtract the noise from every published model, so the file must not be published with it.
"""

import os
import secrets
from pathlib import Path

from fedcm.core.privacy.keystream import KEY_BYTES
from fedcm.errors import UserError

FILE = "noise.key"


def create_noise_key(folder: Path) -> None:
    """Write a new key, with mode 600."""
    descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())


def read_noise_key(folder: Path) -> bytes:
    """Return the key of a run.

    Raises:
        UserError: If the key is missing or damaged, or others can read it.
    """
    path = folder / FILE
    try:
        key, mode = path.read_bytes(), path.stat().st_mode & 0o077
    except OSError as error:
        raise UserError(
            f"a run with privacy.secret = true needs its key {str(path)!r}, which cannot be read ({error.strerror}): "
            "with another key, rounds that are run again would have other noise and cost privacy twice; restore the "
            "file or start a new run"
        ) from None
    if len(key) != KEY_BYTES:
        raise UserError(f"the key {str(path)!r} must have {KEY_BYTES} bytes, got {len(key)}; restore the file")
    if mode:
        raise UserError(f"only its owner may read the key {str(path)!r}; run `chmod 600 {path}`")
    return key
