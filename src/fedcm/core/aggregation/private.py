"""The differentially private mean: clipped private parts, noise on the integer sum, the expected cohort as divisor.

    mean = public + (Σ_i clip(report_i − public) + noise) / (expected cohort)

`public` is the part of every report that the server knows already (`Algorithm.public_part`); it costs nothing. The sum
is one of integers, and the noise is a discrete Gaussian on the same grid. Every worker draws the same noise. A round
without clients has noise too: otherwise an update that is missing would tell that nobody took part.
"""

import math
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch

from fedcm.core.aggregation.report_sum import ReportSum
from fedcm.core.algorithm import Algorithm, Round
from fedcm.core.exact_mean import FRACTION_BITS, ExactMean, find_largest
from fedcm.core.privacy.clipping import choose_grid_bits, clip_to_grid
from fedcm.core.privacy.discrete_gaussian import sample_discrete_gaussian
from fedcm.core.privacy.noise_shares import compute_share
from fedcm.core.privacy.quantile import FACTOR, SHARE, ClipQuantile

_UNIT = 2.0**-FRACTION_BITS  # what `ExactMean` adds as the integer 1
_SHARE_BITS = 10  # of the grid of Σ (b_i − 1/2), in halves


@final
@dataclass(frozen=True)
class PrivateMean:
    """Averages reports with differential privacy for each client.

    Attributes:
        algorithm: The algorithm, for the public part of its reports.
        noise_multiplier: Standard deviation of the noise over the greatest norm of a report.
        clip: The threshold of each field of a report.
        expected_cohort: The expected number of clients of a round, by which the sum is divided.
        steps: Σ_k f_k of every client in every round.
        key: The key of the noise, 32 bytes; None if the reports contain their shares of the noise already.
        quantile: How the thresholds move; None if they are fixed.
    """

    algorithm: Algorithm[Any, Any, Any, Any]
    noise_multiplier: float
    clip: tuple[float, ...]
    expected_cohort: float
    steps: float
    key: bytes | None
    quantile: ClipQuantile | None = None

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round; see `Aggregation`."""
        known = replace(round, steps=self.steps, cohort_size=self.expected_cohort)
        return PrivateSum(self, template, self.algorithm.public_part(sent, known), len(cohort), round)


@final
class PrivateSum(ReportSum):
    """The sum of the clipped private parts of one round, and their private mean."""

    def __init__(self, setting: PrivateMean, template: Any, public: Any, cohort_size: int, round: Round) -> None:
        """Start an empty sum.

        Args:
            setting: The thresholds, the noise and its key.
            template: A report of the algorithm.
            public: The public part of every report; None if it is 0.
            cohort_size: The number of clients on all workers.
            round: The round.
        """
        self.setting, self.round = setting, round
        self.expected_size = self._divisor = setting.expected_cohort
        self._public = public if public is not None else type(template)(*[torch.zeros_like(one) for one in template])
        self._thresholds = [round.clip_factor * threshold for threshold in setting.clip]
        split = setting.quantile.split_noise(setting.noise_multiplier) if setting.quantile is not None else None
        self._noise = setting.noise_multiplier if split is None else split
        self._bits = choose_grid_bits(self._noise)
        self._template, summed = template, template
        if setting.quantile is not None:
            summed = namedtuple("ReportAndShare", [*template._fields, SHARE])(*template, template[0].new_zeros(1))
        self._sum = ExactMean(summed, cohort_size)
        self._metrics: dict[str, float] = {}

    @property
    def sum(self) -> ExactMean[Any]:
        """The exact sum of integers."""
        return self._sum

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Clip the private parts of a stack and add them; see `ReportSum`. All weights must be 1."""
        assert all(weight == 1 for weight in weights), "a private mean has equal weights"
        rows = [field.reshape(len(clients), -1) for field in report]
        for name, field in zip(self._template._fields, rows, strict=True):
            find_largest(clients, name, field)
        private = [
            field.to(torch.float64) - public.reshape(1, -1) for field, public in zip(rows, self._public, strict=True)
        ]
        clipped = clip_to_grid(private, self._thresholds, self._bits)
        units = clipped.fields
        if self.setting.quantile is not None:
            units = [*units, (2 * clipped.is_below.to(torch.int64)[:, None] - 1) << _SHARE_BITS]
        kind = type(self._sum.template)
        fields = zip(units, self._sum.template, strict=True)  # exact: these integers have at most 21 bits
        self._sum.add_stack(clients, kind(*[(own.to(like.dtype) * _UNIT) for own, like in fields]), weights)

    def add_share_of_noise(self, shares: int, key: bytes) -> None:
        """Add one party's share of the noise to the sum; all `shares` of them together have the noise of a round.

        Args:
            shares: The number of shares.
            key: The party's own key, 32 bytes.
        """
        assert self.setting.quantile is None, "thresholds that move have noise of their own"
        sigma = compute_share(self._noise, self._bits, shares)
        for index, total in enumerate(self._sum.units):
            noise = sample_discrete_gaussian(sigma, total.numel(), key, self.round.index, index)
            total += torch.from_numpy(noise).to(total.device)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        """Return the private mean. It is a function of the sum, the key and the round."""
        noise = math.ceil(self._noise * 2**self._bits)
        totals, means = self._sum.units, []
        fields = zip(self._template, self._public, self._thresholds, strict=True)
        for index, (like, public, threshold) in enumerate(fields):
            step = threshold * 2.0**-self._bits / self._divisor
            mean = self._add_noise(totals[index], noise, index) * step + public.reshape(-1).to(torch.float64)
            means.append(mean.to(like.dtype).view(like.shape))
        if self.setting.quantile is not None:
            noise = math.ceil(self.setting.quantile.noise_multiplier * 2**_SHARE_BITS)
            halves = self._add_noise(totals[-1], noise, len(means)).item() / 2**_SHARE_BITS
            share = 0.5 + halves / 2 / self._divisor
            self._metrics = {FACTOR: self.round.clip_factor, SHARE: share}
        return type(self._template)(*means)

    def _add_noise(self, total: torch.Tensor, sigma: int, field: int) -> torch.Tensor:
        if self.setting.key is None:
            return total.to(torch.float64)
        noise = sample_discrete_gaussian(sigma, total.numel(), self.setting.key, self.round.index, field)
        return (total + torch.from_numpy(noise).to(total.device)).to(torch.float64)

    def describe(self) -> Mapping[str, Any]:
        """Return the factor of the thresholds and the noisy share of reports within them, if the thresholds move."""
        return self._metrics
