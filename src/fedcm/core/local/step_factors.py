"""The factors f_k of a client's local steps: step k of a round moves by client_lr · f_k · direction_k."""

import math
from typing import final

import torch
from torch import Tensor

from fedcm.core.schedule_kinds import RateSchedule

_MAX_KNOWN = 64  # numbers of steps whose factors are kept


@final
class StepFactors:
    """The factors of all steps of a round, for any number K_i of steps.

    >>> from fedcm.core.schedule_kinds import ExponentialDecay
    >>> StepFactors(ExponentialDecay(0.5)).get(3), StepFactors(ExponentialDecay(0.5)).sum(3)
    ((1.0, 0.5, 0.25), 1.75)
    """

    def __init__(self, schedule: RateSchedule) -> None:
        self.schedule = schedule
        self._factors: dict[int, tuple[float, ...]] = {}
        self._sums: dict[int, float] = {}

    def get(self, count: int) -> tuple[float, ...]:
        """Return f_0, …, f_{K−1} for K = `count` steps."""
        if count not in self._factors:
            if len(self._factors) >= _MAX_KNOWN:
                self._factors.clear()
            self._factors[count] = tuple(self.schedule.compute_factor(k, count, "local step") for k in range(count))
        return self._factors[count]

    def sum(self, count: int) -> float:
        """Return Σ f_k, the effective number of steps."""
        if count not in self._sums:
            self._sums[count] = math.fsum(self.get(count))
        return self._sums[count]

    def stack(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of a stack of clients (C, K), 1 after a client's last step, and their sums (C, 1).

        Args:
            counts: K_i of each client, (C, 1), in the dtype of the parameters.
        """
        known = [self.get(int(count)) for count in counts[:, 0].tolist()]
        longest = max(map(len, known))
        rows = [[*factors, *[1.0] * (longest - len(factors))] for factors in known]
        sums = [[self.sum(len(factors))] for factors in known]
        return torch.tensor(rows, dtype=torch.float64).to(counts), torch.tensor(sums, dtype=torch.float64).to(counts)
