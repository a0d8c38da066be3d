"""The mean of reports, with the same bits whatever the order.

A floating-point sum depends on its order, so a mean over workers would too. Here every entry is rounded once to fixed
point and added as integers: the total is the same for any order, any grouping into stacks and any number of machines.

    total = Σ_i round(w_i · report_i · 2⁴⁸)        mean = total · 2⁻⁴⁸ / Σ_i w_i

The total lives in int64 limbs. One limb is enough while every entry stays below 2¹⁴ / S. A larger entry is split into
digits of 40 bits, and the digits above the first go to higher limbs, which are allocated when an entry needs them. So
every finite float32 can be added. float64 reports carry one more limb for what the first rounded away, down to 2⁻⁸⁸;
their entries must stay below 2¹²⁸.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar, final

import torch
from torch import Tensor

FRACTION_BITS = 48
LIMIT = 2.0**128  # entries below it fit: every finite float32
_LIMB_BITS = 40
_SUM_BITS = 62  # of int64's 63, so that a sum within them never wraps
_BLOCK = 2**15  # entries at a time: what a core's cache holds; a third of the time for large models

Report = TypeVar("Report", bound=tuple)


class OutOfRange(ArithmeticError):  # noqa: N818
    """A report that is not finite, or too large to be added exactly."""

    def __init__(self, client: int, field: str, largest: float) -> None:
        self.client = client
        what = f"reaches {largest:.3g}, where less than {LIMIT:.3g} fits" if largest == largest else "holds a nan"
        super().__init__(f"the {field!r} that client {client} reported {what}")


@final
class ExactMean(Generic[Report]):
    """Takes reports one by one, in any order, and gives their mean.

    >>> from fedcm.algorithms.fedavg import Report
    >>> mean = ExactMean(Report(torch.zeros(2)), cohort=2)
    >>> mean.add(7, Report(torch.tensor([1.0, 3.0])))
    >>> mean.add(3, Report(torch.tensor([2.0, 4e9])))
    >>> mean.value(weight=2.0)
    Report(moved=tensor([1.5000e+00, 2.0000e+09]))
    """

    def __init__(self, template: Report, cohort: int) -> None:
        """Start an empty mean.

        Args:
            template: gives the fields, their sizes and dtypes.
            cohort: how many reports there may be in all, on every worker together.
        """
        cohort_bits = max(cohort - 1, 0).bit_length()
        self.template = template
        self._limb_bits = min(_LIMB_BITS, _SUM_BITS + 1 - cohort_bits)  # a digit is at most half of 2^bits
        self._one = 2.0**FRACTION_BITS
        self._whole = 2.0 ** (_SUM_BITS - FRACTION_BITS - cohort_bits)  # entries below it need one limb
        self._sums = [_LimbSum(field, self._limb_bits) for field in template]

    @property
    def totals(self) -> list[Tensor]:
        """The limbs that every mean of this report has, as int64; those of several workers are simply added."""
        return [limb for total in self._sums for limb in total.lower]

    @property
    def high_limbs(self) -> int:
        """How many higher limbs the largest entry so far needed; 0 in a healthy run of usual scale."""
        return max((len(total.higher) for total in self._sums), default=0)

    def widen(self, limbs: int) -> list[Tensor]:
        """Allocate this many higher limbs and return them, in an order that is the same on every worker."""
        for total in self._sums:
            total.widen(limbs)
        return [limb for total in self._sums for limb in total.higher]

    def add(self, client: int, report: Report, weight: float = 1.0) -> None:
        """Add one report. `weight` is above 0 and at most 1, and has few bits: 1, or a count of examples over a power
        of two."""
        self.add_stack([client], report, [weight])

    def add_stack(self, clients: Sequence[int], report: Report, weights: Sequence[float]) -> None:
        """Add a row of each field for each client: all rows, or on an error none.

        Raises:
            OutOfRange: an entry is not finite, or too large.
        """
        names: Sequence[str] = getattr(report, "_fields", ())
        rows = [field.view(len(clients), -1) for field in report]
        largest = [_largest(clients, name, each) for name, each in zip(names, rows, strict=True)]
        for each, most, total in zip(rows, largest, self._sums, strict=True):
            scales = torch.tensor(weights, dtype=torch.float64, device=each.device)[:, None] * self._one
            total.add(each, scales, 0 if most < self._whole else self._limbs_for(most))

    def _limbs_for(self, largest: float) -> int:
        limbs, fits = 0, 2.0 ** (self._limb_bits - 1) / self._one
        while largest >= fits:
            limbs, fits = limbs + 1, fits * 2.0**self._limb_bits
        return limbs

    def value(self, weight: float) -> Report:
        """The mean, given the sum of all weights; the same bits for the same set of reports."""
        means = [total.value().mul_(1.0 / self._one).div_(weight) for total in self._sums]
        return type(self.template)(*[mean.to(like.dtype) for mean, like in zip(means, self.template, strict=True)])


@final
class _LimbSum:
    """One field's exact sum: units, the higher limbs that were needed, and for float64 a limb of finer parts."""

    def __init__(self, like: Tensor, limb_bits: int) -> None:
        self.bits = limb_bits
        self.base = 2.0**limb_bits
        count = 2 if like.dtype == torch.float64 else 1
        self.lower = [self._zeros(like) for _ in range(count)]  # units; then what rounding to units left, · 2^bits
        self.higher: list[Tensor] = []  # of 2^bits units, 2^(2·bits) units, …

    def _zeros(self, like: Tensor) -> Tensor:
        return torch.zeros(like.numel(), dtype=torch.int64, device=like.device)

    def widen(self, limbs: int) -> None:
        self.higher += [self._zeros(self.lower[0]) for _ in range(limbs - len(self.higher))]

    def add(self, rows: Tensor, scales: Tensor, higher: int) -> None:
        """Add each row times its scale; entries need this many higher limbs."""
        self.widen(higher)
        wide = _BLOCK if rows.device.type == "cpu" else rows.numel()
        high = max(wide // rows.shape[1], 1)
        for some, scale in zip(rows.split(high), scales.split(high), strict=True):
            for start in range(0, rows.shape[1], wide):
                here = slice(start, start + wide)
                self._add_block(some[:, here].to(torch.float64, copy=True).mul_(scale), here, higher)

    def _add_block(self, scaled: Tensor, here: slice, higher: int) -> None:
        units = scaled.round()
        if len(self.lower) == 2:
            self.lower[1][here] += _column_sums(scaled.sub_(units).mul_(self.base).round_())
        for limb in range(higher, 0, -1):  # exact: a float64 minus its own leading digits
            digits = (units / self.base**limb).round_()
            self.higher[limb - 1][here] += _column_sums(digits)
            units -= digits.mul_(self.base**limb)
        self.lower[0][here] += _column_sums(units)

    def value(self) -> Tensor:
        """The total in units, rounded to float64: a function of the total alone, not of how it came to be split."""
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


def _column_sums(whole: Tensor) -> Tensor:
    return whole.to(torch.int64).sum(0)  # as integers: a sum of floats might round


def _largest(clients: Sequence[int], name: str, rows: Tensor) -> float:
    """The largest magnitude; an error that names the first client whose entries do not fit."""
    low, high = rows.aminmax()
    largest = max(-low.item(), high.item())
    if largest < LIMIT:  # not so for nan
        return largest
    for client, row in zip(clients, rows, strict=True):
        low, high = row.aminmax()
        own = max(-low.item(), high.item())
        if not own < LIMIT:
            raise OutOfRange(client, name, own)
    raise AssertionError("a stack's largest entry is some row's largest")
