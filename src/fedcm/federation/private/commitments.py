"""One result per round: a machine writes down what it reveals in a private round, and reveals nothing else.

A round may be run again after a crash, with the same noise. If it had another sum then, the difference of both results
would have no noise. So a round that is run again must have the same sum, or it has no result.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable
from pathlib import Path
from typing import final

from torch import Tensor

from fedcm.errors import UserError
from fedcm.system.files import write_text


@final
class Commitments:
    """A file with one hash per round."""

    def __init__(self, file: Path) -> None:
        """Use a file, which may not exist yet."""
        self.file = file

    def commit(self, round: int, digest: str) -> bool:
        """Return whether a round has this hash. The first hash of a round is on the disk when this returns.

        Raises:
            UserError: If the file is damaged.
        """
        known = self._read()
        if str(round) not in known:
            write_text(self.file, json.dumps(known | {str(round): digest}))
            return True
        return known[str(round)] == digest

    def _read(self) -> dict[str, str]:
        if not self.file.exists():
            return {}
        try:
            known = json.loads(self.file.read_text(encoding="utf-8"))
            if not isinstance(known, dict):
                raise ValueError(f"not a table, but {type(known).__name__}")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{str(self.file)!r} must say what the private rounds of this run revealed, but is damaged ({error}); "
                "restore the file, or start a new run"
            ) from None
        return known


def hash_integers(integers: Iterable[Tensor], key: bytes = b"") -> str:
    """Return a hash of int64 vectors, which nobody without the key can guess vectors by."""
    made = hmac.new(key, digestmod=hashlib.sha256)
    for vector in integers:
        made.update(vector.numel().to_bytes(8, "little"))
        made.update(vector.cpu().contiguous().numpy().tobytes())
    return made.hexdigest()
