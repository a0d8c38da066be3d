"""The mean of reports, with the same bits in any order.

A floating-point sum depends on the order of its terms, and so on how clients are spread over workers. Here every entry
is rounded once to fixed point and added as an integer: the total is the same for any order, any grouping into stacks
and any number of machines.

    total = Σ_i round(w_i · report_i · 2⁴⁸)        mean = total · 2⁻⁴⁸ / Σ_i w_i

The total is stored in int64 limbs. One limb is enough while every entry is below 2¹⁴ / S, where S is the size of the
cohort. A larger entry is split into digits of 40 bits. The digits above the first go to higher limbs, which are
allocated when an entry needs them, so every finite float32 can be added. float64 reports have one more limb for the
remainder of the rounding, down to 2⁻⁸⁸; their entries must be below 2¹²⁸.
"""

import math
from collections.abc import Sequence
from typing import Generic, TypeVar, final

import torch
from torch import Tensor

FRACTION_BITS = 48
LIMIT = 2.0**128  # entries must be below it; every finite float32 is
_LIMB_BITS = 40
_SUM_BITS = 62  # one less than int64 has, so that no sum overflows
_BLOCK = 2**15  # entries at a time: they fit into a core's cache, which makes large models three times as fast

Report = TypeVar("Report", bound=tuple)


class OutOfRange(ArithmeticError):  # noqa: N818
    """A report has an entry that is not finite, or too large to be added exactly."""

    def __init__(self, client: int, field: str, largest: float) -> None:
        self.client = client
        problem = "has a nan" if math.isnan(largest) else f"must stay below {LIMIT:.3g}, but reaches {largest:.3g}"
        super().__init__(f"the {field!r} that client {client} reported {problem}")


@final
class ExactMean(Generic[Report]):
    """Adds reports in any order and computes their mean.

    >>> from fedcm.algorithms.averaging.fedavg import Report
    >>> mean = ExactMean(Report(torch.zeros(2)), cohort_size=2)
    >>> mean.add(7, Report(torch.tensor([1.0, 3.0])))
    >>> mean.add(3, Report(torch.tensor([2.0, 4e9])))
    >>> mean.compute(total_weight=2.0)
    Report(moved=tensor([1.5000e+00, 2.0000e+09]))
    """

    def __init__(self, template: Report, cohort_size: int) -> None:
        """Start an empty mean.

        Args:
            template: A report that gives the fields, their sizes and dtypes.
            cohort_size: The largest number of reports, on all workers together.
        """
        cohort_bits = max(cohort_size - 1, 0).bit_length()
        self.template = template
        self._limb_bits = min(_LIMB_BITS, _SUM_BITS + 1 - cohort_bits)  # a digit is at most 2^bits / 2
        self._scale = 2.0**FRACTION_BITS
        self._one_limb_limit = 2.0 ** (_SUM_BITS - FRACTION_BITS - cohort_bits)  # entries below it fit into one limb
        self._sums = [_LimbSum(field, self._limb_bits) for field in template]

    @property
    def totals(self) -> list[Tensor]:
        """The int64 limbs that every mean has; to combine workers, add theirs."""
        return [limb for total in self._sums for limb in total.lower]

    @property
    def units(self) -> list[Tensor]:
        """The int64 limb of units of each field: the whole sum, if no entry needed a higher limb or has a remainder."""
        return [total.lower[0] for total in self._sums]

    @property
    def high_limbs(self) -> int:
        """The number of higher limbs that the largest entry so far needed; usually 0."""
        return max((len(total.higher) for total in self._sums), default=0)

    def allocate_high_limbs(self, limbs: int) -> list[Tensor]:
        """Allocate this number of higher limbs and return them, in the same order on every worker."""
        for total in self._sums:
            total.allocate_high_limbs(limbs)
        return [limb for total in self._sums for limb in total.higher]

    def add(self, client: int, report: Report, weight: float = 1.0) -> None:
        """Add one report.

        `weight` must be above 0 and at most 1, and have few bits: 1, or a number of examples over a power of two.
        """
        self.add_stack([client], report, [weight])

    def add_stack(self, clients: Sequence[int], report: Report, weights: Sequence[float]) -> None:
        """Add one row of each field for each client. On an error, nothing is added.

        Raises:
            OutOfRange: If an entry is not finite or too large.
        """
        names: Sequence[str] = getattr(report, "_fields", ())
        rows = [field.reshape(len(clients), -1) for field in report]
        largest = [find_largest(clients, name, field) for name, field in zip(names, rows, strict=True)]
        for field, maximum, total in zip(rows, largest, self._sums, strict=True):
            scales = torch.tensor(weights, dtype=torch.float64, device=field.device)[:, None] * self._scale
            total.add(field, scales, 0 if maximum < self._one_limb_limit else self._count_high_limbs(maximum))

    def _count_high_limbs(self, largest: float) -> int:
        limbs, limit = 0, 2.0 ** (self._limb_bits - 1) / self._scale
        while largest >= limit:
            limbs, limit = limbs + 1, limit * 2.0**self._limb_bits
        return limbs

    def compute(self, total_weight: float) -> Report:
        """Return the mean, given the sum of all weights. The same set of reports gives the same bits."""
        means = [total.compute().mul_(1.0 / self._scale).div_(total_weight) for total in self._sums]
        fields = zip(means, self.template, strict=True)
        return type(self.template)(*[mean.to(like.dtype).view(like.shape) for mean, like in fields])


@final
class _LimbSum:
    """The exact sum of one field: a limb of units, higher limbs as needed, and for float64 a limb of remainders."""

    def __init__(self, like: Tensor, limb_bits: int) -> None:
        self.bits = limb_bits
        self.base = 2.0**limb_bits
        count = 2 if like.dtype == torch.float64 else 1
        self.lower = [self._zeros(like) for _ in range(count)]  # units; then remainders of units, · 2^bits
        self.higher: list[Tensor] = []  # in multiples of 2^bits units, 2^(2·bits) units, …

    def _zeros(self, like: Tensor) -> Tensor:
        return torch.zeros(like.numel(), dtype=torch.int64, device=like.device)

    def allocate_high_limbs(self, limbs: int) -> None:
        """Allocate higher limbs up to this number."""
        self.higher += [self._zeros(self.lower[0]) for _ in range(limbs - len(self.higher))]

    def add(self, rows: Tensor, scales: Tensor, higher: int) -> None:
        """Add each row times its scale; the entries need `higher` higher limbs."""
        self.allocate_high_limbs(higher)
        width = _BLOCK if rows.device.type == "cpu" else rows.numel()
        height = max(width // rows.shape[1], 1)
        for block, scale in zip(rows.split(height), scales.split(height), strict=True):
            for start in range(0, rows.shape[1], width):
                columns = slice(start, start + width)
                self._add_block(block[:, columns].to(torch.float64, copy=True).mul_(scale), columns, higher)

    def _add_block(self, scaled: Tensor, columns: slice, higher: int) -> None:
        units = scaled.round()
        if len(self.lower) == 2:
            self.lower[1][columns] += _sum_columns(scaled.sub_(units).mul_(self.base).round_())
        for limb in range(higher, 0, -1):  # subtracting its leading digits from a float64 is exact
            digits = (units / self.base**limb).round_()
            self.higher[limb - 1][columns] += _sum_columns(digits)
            units -= digits.mul_(self.base**limb)
        self.lower[0][columns] += _sum_columns(units)

    def compute(self) -> Tensor:
        """Return the total in units, rounded to float64.

        It depends on the total alone, not on how the total is split over the limbs.
        """
        digits, carried = [], self.lower[0]
        for limb in self.higher:
            up = (carried + (1 << (self.bits - 1))) >> self.bits
            digits.append(carried - (up << self.bits))
            carried = limb + up
        total = carried.to(torch.float64)
        for digit in reversed(digits):
            total = total.mul_(self.base).add_(digit)
        if len(self.lower) == 2:
            total += self.lower[1].to(torch.float64).mul_(1.0 / self.base)
        return total


def _sum_columns(whole: Tensor) -> Tensor:
    return whole.to(torch.int64).sum(0)  # as integers, because a sum of floats may round


def find_largest(clients: Sequence[int], name: str, rows: Tensor) -> float:
    """Return the largest magnitude; raise an error that names the first client with an entry out of range."""
    low, high = rows.aminmax()
    largest = max(-low.item(), high.item())
    if largest < LIMIT:  # False for nan
        return largest
    for client, row in zip(clients, rows, strict=True):
        low, high = row.aminmax()
        own = max(-low.item(), high.item())
        if not own < LIMIT:
            raise OutOfRange(client, name, own)
    raise AssertionError("the largest entry of a stack must be the largest of one of its rows")
