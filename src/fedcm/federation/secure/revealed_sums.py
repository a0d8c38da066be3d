"""Which sums a site has helped to reveal: for each round of a run, over one set of sites only.

Two sums of one round over different sets would give the difference, which may be a single report. A server that lost a
round may repeat it with the same sites: the sum is the same.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import final

from fedcm.errors import UserError
from fedcm.system.files import write_text

_FILE = "sums.json"


@final
class RevealedSums:
    """The file that remembers a run's sums in a site's kit."""

    def __init__(self, folder: Path) -> None:
        """Use the folder of the run's client states."""
        self._file = folder / _FILE

    def check(self, round: int, sites: Sequence[str]) -> None:
        """Raise UserError if the round's sum was revealed over other sites."""
        before = self._read().get(str(round))
        if before is not None and before != sorted(sites):
            raise UserError(
                f"this site has revealed the sum of round {round} over {', '.join(before)}, and a round has one sum"
            )

    def remember(self, round: int, sites: Sequence[str]) -> None:
        """Write to the disk that the round's sum is over these sites; the errors are those of `check`."""
        self.check(round, sites)
        sums = self._read()
        if str(round) not in sums:
            write_text(self._file, json.dumps(sums | {str(round): sorted(sites)}))

    def _read(self) -> dict[str, list[str]]:
        if not os.path.lexists(self._file):  # a broken link is damage
            return {}
        try:
            sums = json.loads(self._file.read_text(encoding="utf-8"))
            if not isinstance(sums, dict):
                raise ValueError(f"not a table, but {type(sums).__name__}")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{str(self._file)!r} must say which sums were revealed, but is damaged ({error})"
            ) from None
        return sums
