"""The mean of reports, exact whatever the order.

Floating-point sums depend on their order, so a mean over workers would too. Here every report is rounded once to fixed
point and added as integers: the total is the same for any order, any grouping into stacks and any number of machines.

    total = Σ_i round(w_i · report_i · 2⁴⁰)        int64;  mean = total · 2⁻⁴⁰ / Σ_i w_i

float64 reports carry a second integer for what the first rounded away, down to 2⁻⁸⁰. An entry of 2²² / S or more does
not fit: that is a diverged client, and the error names it. Past S = 4096 the fraction has one bit less for every
doubling of S, so that entries up to 2¹⁰ always fit.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar, final

import torch
from torch import Tensor

FRACTION_BITS = 40
_HEADROOM_BITS = 62  # of int64's 63, so that a sum within them never wraps
_LEAST_RANGE_BITS = 10
_BLOCK = 2**15  # entries at a time: what a core's cache holds; a third of the time for large models

Report = TypeVar("Report", bound=tuple)


class OutOfRange(ArithmeticError):  # noqa: N818
    """A report that is not finite or too large to be added exactly."""

    def __init__(self, client: int, field: str, largest: float, limit: float) -> None:
        self.client = client
        what = f"reaches {largest:.3g}, where less than {limit:.3g} fits" if largest == largest else "holds a nan"
        super().__init__(f"the {field!r} that client {client} reported {what}")


@final
class ExactMean(Generic[Report]):
    """Takes reports one by one, in any order, and gives their mean.

    >>> from fedcm.algorithms.fedavg import Report
    >>> mean = ExactMean(Report(torch.zeros(2)), cohort=2)
    >>> mean.add(7, Report(torch.tensor([1.0, 3.0])))
    >>> mean.add(3, Report(torch.tensor([2.0, 4.0])))
    >>> mean.value(weight=2.0)
    Report(moved=tensor([1.5000, 3.5000]))
    """

    def __init__(self, template: Report, cohort: int) -> None:
        """`template` gives the fields, their sizes and dtypes; `cohort` is how many reports there may be in all, on
        every worker together."""
        cohort_bits = max(cohort - 1, 0).bit_length()
        fraction_bits = min(FRACTION_BITS, _HEADROOM_BITS - _LEAST_RANGE_BITS - cohort_bits)
        self.one = 2.0**fraction_bits
        self.limit = 2.0 ** (_HEADROOM_BITS - fraction_bits - cohort_bits)
        self.template = template
        self.totals = [  # per field: (limbs, P) int64; those of several workers are simply added
            torch.zeros((_limbs(field.dtype), field.numel()), dtype=torch.int64, device=field.device)
            for field in template
        ]

    def add(self, client: int, report: Report, weight: float = 1.0) -> None:
        """`weight` lies in (0, 1], and is exact in few bits: a count of examples over a power of two, or 1."""
        self.add_stack([client], report, [weight])

    def add_stack(self, clients: Sequence[int], report: Report, weights: Sequence[float]) -> None:
        """As one by one: a row of each field for each client; all of it, or on an error none of it."""
        names: Sequence[str] = getattr(report, "_fields", ())
        for name, field in zip(names, report, strict=True):
            self._refuse_large(clients, name, field.view(len(clients), -1))
        for field, total in zip(report, self.totals, strict=True):
            rows = field.view(len(clients), -1)
            scales = torch.tensor(weights, dtype=torch.float64, device=field.device) * self.one
            self._add_rows(rows, scales[:, None], total)

    def _add_rows(self, rows: Tensor, scales: Tensor, total: Tensor) -> None:
        wide = _BLOCK if rows.device.type == "cpu" else rows.numel()
        high = max(wide // rows.shape[1], 1)
        for some, scale in zip(rows.split(high), scales.split(high), strict=True):
            for block, sums in zip(some.split(wide, dim=1), total.split(wide, dim=1), strict=True):
                scaled = block.to(torch.float64, copy=True).mul_(scale)
                rounded = scaled.round()
                sums[0] += rounded.to(torch.int64).sum(0)  # as integers: a sum of floats might round
                if sums.shape[0] == 2:
                    sums[1] += scaled.sub_(rounded).mul_(self.one).round_().to(torch.int64).sum(0)

    def _refuse_large(self, clients: Sequence[int], name: str, rows: Tensor) -> None:
        low, high = rows.aminmax()
        if max(-low.item(), high.item()) < self.limit:  # not so for nan
            return
        for client, row in zip(clients, rows, strict=True):
            low, high = row.aminmax()
            largest = max(-low.item(), high.item())
            if not largest < self.limit:
                raise OutOfRange(client, name, largest, self.limit)

    def value(self, weight: float) -> Report:
        """The mean, given the sum of all weights; the same bits for the same set of reports."""
        fields = []
        for total, like in zip(self.totals, self.template, strict=True):
            mean = total[0].to(torch.float64).mul_(1.0 / self.one)
            if total.shape[0] == 2:
                mean += total[1].to(torch.float64).mul_(1.0 / self.one**2)
            fields.append(mean.div_(weight).to(like.dtype))
        return type(self.template)(*fields)


def _limbs(dtype: torch.dtype) -> int:
    return 2 if dtype == torch.float64 else 1
