"""What a site has revealed of each training in any run: the server chooses ids of runs, so it could ask twice.

`state/sums.json`     by training, the hash of the sites in its sum and of the bound on their weights
`state/masked.json`   by private training, the run in which the site masked its noisy report

A training is the hash of everything that decides a report: round, broadcast, terms, and the experiment without the
settings of the federation. Nothing is ever removed from these files: an entry has about 100 bytes.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import final

from fedcm.errors import UserError
from fedcm.federation.file_modes import private_files
from fedcm.federation.secure.messages import compute_digest
from fedcm.system.files import write_text

_SUMS, _MASKED = "sums.json", "masked.json"
_LOCK = ".sums.lock"
_DIGITS = 32  # of a hash: 128 bits


@final
class KitSums:
    """The files of a site's kit that remember one training."""

    def __init__(self, folder: Path, training: str, max_examples: int | None = None) -> None:
        """Use the folder with the client states of all runs.

        Args:
            folder: This folder.
            training: Hash of what was trained.
            max_examples: The bound on weights. Two sums with different bounds would be two equations for the reports.
        """
        self._folder = folder
        self._training = training[:_DIGITS]
        self._max_examples = max_examples

    def check(self, sites: Sequence[str]) -> None:
        """Raise UserError if the sum of this training was revealed over other sites, in any run."""
        self._check(_read_table(self._folder / _SUMS), self._hash_sum(sites))

    def remember(self, sites: Sequence[str]) -> None:
        """Write to the disk that the sum is over these sites; the errors are those of `check`."""
        with self._lock():
            self._check(self._add(_SUMS, self._hash_sum(sites)), self._hash_sum(sites))

    def claim_noise(self, run: str) -> None:
        """Write to the disk that this run gets the noisy report.

        Raises:
            UserError: If another run got it: two reports with different noise cost privacy twice.
        """
        with self._lock():
            if self._add(_MASKED, run)[self._training] != run:
                raise UserError(
                    "this site has masked a noisy report of the same training in another run, and gives no second one "
                    "with other noise; start a new run with another seed"
                )

    def _check(self, sums: dict[str, str], own: str) -> None:
        if sums.get(self._training, own) != own:
            raise UserError(
                "this site has revealed the sum of the same training in another run over other sites, or with another "
                "federation.max_examples, and a training has one sum; start a new run with another seed"
            )

    def _hash_sum(self, sites: Sequence[str]) -> str:
        bound = [] if self._max_examples is None else [self._max_examples]
        return compute_digest("sites", [*sorted(set(sites)), *bound])[:_DIGITS]

    def _add(self, name: str, value: str) -> dict[str, str]:
        """Return a table after this training has an entry in it: the older one, or this value."""
        table = _read_table(self._folder / name)
        if self._training not in table:
            table[self._training] = value
            with private_files():
                write_text(self._folder / name, json.dumps(table, separators=(",", ":")))
        return table

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Wait for the processes of other runs of this site, which write the same files."""
        with private_files():
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _read_table(file: Path) -> dict[str, str]:
    if not os.path.lexists(file):  # a broken link is damage
        return {}
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(table, dict):
            raise ValueError(f"not a table, but {type(table).__name__}")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(file)!r} must say what this site revealed in all runs, but is damaged ({error}); restore the file"
        ) from None
    return table
