"""A report as the integers that are masked and added, and back from their sum to the mean.

The integers are those of `fedcm.core.exact_mean`, so the mean has the bits that it has without masks:

    [ round(w · report · 2⁴⁸) of every field | round(w · loss · 2²⁴) ]        modulo 2⁶⁴, as uint64

float64 reports have a second integer per entry, the remainder of the rounding. A report whose entries need higher limbs
(from 2¹⁴ / sites on) is rejected, because the number of integers would show which site has the largest entry.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.core.exact_mean import ExactMean
from fedcm.errors import UserError

_LOSS_SCALE = 2.0**24
_LARGEST_LOSS = 2.0**30  # so that a sum over 2⁹ sites stays below 2⁶³
_LARGEST_SUM = 2**62  # of reports within the range; a wrong mask gives any number below 2⁶³


def count_integers(template: Any) -> int:
    """Return the number of integers of a report, with the loss."""
    return sum(limb.numel() for limb in ExactMean(template, 1).totals) + 1


def check_report(report: Any, loss: float, sites: int, norm_bound: float | None) -> None:
    """Check at the site what the server cannot see.

    Args:
        report: The algorithm's report.
        loss: The mean loss of the local steps.
        sites: The largest number of reports in the sum.
        norm_bound: The largest norm of each vector; None: any.

    Raises:
        UserError: If the report or the loss is not finite or too large.
    """
    limit = 2 ** (14 - (sites - 1).bit_length())
    for name, vector in zip(report._fields, report, strict=True):
        norm, largest = torch.linalg.vector_norm(vector, dtype=torch.float64).item(), vector.abs().max().item()
        if not math.isfinite(norm):
            raise UserError(f"its {name} is not finite")
        if norm_bound is not None and norm > norm_bound:
            raise UserError(f"the norm of its {name} is {norm:.4g}, above federation.norm_bound = {norm_bound:g}")
        if largest >= limit:
            raise UserError(
                f"with secure aggregation over {sites} sites, entries of a report must be below {limit}, but its "
                f"{name} reaches {largest:.4g}; lower the learning rates or clip gradients"
            )
    if not abs(loss) < _LARGEST_LOSS:
        raise UserError(f"with secure aggregation a loss must be finite and below {_LARGEST_LOSS:g}, got {loss:g}")


def encode_report(report: Any, loss: float, weight: float, sites: int) -> np.ndarray:
    """Return a checked report and loss as integers modulo 2⁶⁴.

    Args:
        report: The algorithm's report.
        loss: The mean loss of the local steps.
        weight: The site's weight in the mean, above 0 and at most 1.
        sites: The largest number of reports in the sum.
    """
    own = ExactMean(report, sites)
    own.add(0, report, weight)
    assert not own.high_limbs, "the report was not checked"
    return pack_integers([*own.totals, torch.tensor([round(weight * loss * _LOSS_SCALE)])])


def decode_sum(total: np.ndarray, into: ExactMean[Any]) -> float:
    """Put the sum of reports into an empty mean, and return the sum of the weighted losses.

    Raises:
        UserError: If the sum is larger than reports within the range can have, as with a wrong mask.
    """
    loss = torch.zeros(1, dtype=torch.int64)
    unpack_integers(total, [*into.totals, loss])
    return loss.item() / _LOSS_SCALE


def pack_integers(vectors: Iterable[Tensor]) -> np.ndarray:
    """Return int64 vectors as one of uint64, modulo 2⁶⁴."""
    return torch.cat([vector.cpu().reshape(-1) for vector in vectors]).numpy().view(np.uint64)


def unpack_integers(total: np.ndarray, into: Sequence[Tensor]) -> None:
    """Copy the sum of what `pack_integers` made into int64 vectors.

    Raises:
        UserError: If the sum is larger than reports within the range can have, as with a wrong mask.
    """
    units = torch.from_numpy(total.view(np.int64).copy())
    if bool(((units < -_LARGEST_SUM) | (units > _LARGEST_SUM)).any()):
        raise UserError("the sum of the reports is out of range: a site sent a wrong report or a wrong mask")
    for vector, part in zip(into, units.split([one.numel() for one in into]), strict=True):
        vector.copy_(part)
