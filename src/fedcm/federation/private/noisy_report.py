"""A site's report in a private federation with secure aggregation: clipped integers with the site's share of the noise.

The server sees sums of at least t reports (`federation.threshold`). If c of their sites reveal their noise to it
(`federation.colluding`), t − c shares are left, so each share has the variance σ² / (t − c): every sum has at least σ².
"""

from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from fedcm.core.aggregation.private import PrivateMean, PrivateSum
from fedcm.core.algorithm import Round
from fedcm.core.exact_mean import OutOfRange
from fedcm.errors import UserError
from fedcm.federation.private.commitments import Commitments, hash_integers
from fedcm.federation.secure.integers import pack_integers
from fedcm.privacy.key_file import FILE, create_noise_key, read_noise_key

_MASKED = "masked.json"  # by round, the hash of what this site masked


@final
class NoisyReport(NamedTuple):
    """A report of one round, and what its noise depends on."""

    mean: PrivateMean
    sent: Any  # the broadcast as the site received it
    report: Any  # the algorithm's
    round: Round
    shares: int  # t − c
    sites: int  # of the run
    folder: Path  # of the site's client states in the run: it has the key of the noise

    def encode(self) -> np.ndarray:
        """Return the integers to be masked, modulo 2⁶⁴; every call in any process returns the same.

        Raises:
            UserError: If the report is not finite, or this site masked other integers in this round before.
        """
        own = self.mean.start_round(self.report, self.sent, np.arange(self.sites), self.round)
        assert isinstance(own, PrivateSum)
        try:
            own.add_stack([0], self.report, [1.0])
        except OutOfRange:
            raise UserError("its report is not finite") from None
        own.add_share_of_noise(self.shares, _load_key(self.folder))
        digest = hash_integers(own.sum.units)
        if not Commitments(self.folder / _MASKED).commit(self.round.index, digest):
            raise UserError(
                f"this site has masked another report of round {self.round.index}, and a private round has one report"
            )
        return pack_integers(own.sum.units)


def count_noisy_integers(template: Any) -> int:
    """Return the number of integers of a noisy report: one per entry, and no loss."""
    return sum(field.numel() for field in template)


def _load_key(folder: Path) -> bytes:
    """Return the key of this site's noise in a run; made in its first round."""
    if not (folder / FILE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        create_noise_key(folder)
    return read_noise_key(folder)
