"""Thresholds that follow a quantile of the clients' norms: Andrew et al., "Differentially Private Learning with
Adaptive Clipping" (NeurIPS 2021).

Every client also reports whether its report was within the thresholds, b_i. The noisy share of those moves a common
factor of the thresholds:

    share_t = 1/2 + (Σ_i (b_i − 1/2) + noise) / (expected cohort)        factor_{t+1} = factor_t · exp(−η (share_t − γ))

A client changes Σ (b_i − 1/2) by at most 1/2. The noise of both sums together costs as much as noise with multiplier z
on one, if 1/z² = 1/z_reports² + 1/z_share².
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

SHARE = "below_clip"  # the column with the noisy share
FACTOR = "clip_factor"  # the column with the factor of the thresholds
_RATE = 0.2  # η of the paper
_LARGEST_FACTOR = 1e9  # so that a threshold never becomes 0 or infinite
_NOISE_SHARE = 0.05  # standard deviation of the noise of the share, as in the paper


@final
@dataclass(frozen=True)
class ClipQuantile:
    """The rule by which the thresholds move.

    Attributes:
        quantile: γ, the share of clients whose reports should be within the thresholds.
        expected_cohort: The expected number of clients of a round.
    """

    quantile: float
    expected_cohort: float

    @property
    def noise_multiplier(self) -> float:
        """z_share: standard deviation of the noise of Σ (b_i − 1/2), over the sensitivity 1/2."""
        return 2 * _NOISE_SHARE * self.expected_cohort

    def split_noise(self, noise_multiplier: float) -> float | None:
        """Return z_reports such that both noises together cost as much as `noise_multiplier`; None if none is enough.

        >>> round(ClipQuantile(0.5, expected_cohort=50).split_noise(3.0), 2)
        3.75
        >>> ClipQuantile(0.5, expected_cohort=20).split_noise(3.0) is None
        True
        """
        rest = noise_multiplier**-2 - self.noise_multiplier**-2
        return rest**-0.5 if rest > 0 else None

    def compute_factor(self, before: Mapping[str, Any] | None) -> float:
        """Return the factor of a round, given the metrics of the round before; None before the first one."""
        if before is None:
            return 1.0
        factor = before[FACTOR] * math.exp(-_RATE * (before[SHARE] - self.quantile))
        return min(max(factor, 1 / _LARGEST_FACTOR), _LARGEST_FACTOR)
