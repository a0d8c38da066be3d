"""How much a curve goes up and down about its trend."""

import math
import statistics
from itertools import pairwise

from fedcm.report.groups import Entry

EVALUATIONS = 8  # in the second half of a curve, before it is said to oscillate or not


def oscillation(entry: Entry) -> float | None:
    """How far single evaluations lie off the trend, in points, over the second half of the curve.

    Of values with independent errors of deviation s about a straight line, a second difference has the deviation √6·s.
    """
    if entry.diverged:
        return None
    of_runs = []
    for run in entry.counted:
        values = [100 * value for value in run.curve.test_accuracy if value is not None]
        late = values[len(values) // 2 :]
        if len(late) < EVALUATIONS:
            return None
        bends = [after - before for before, after in pairwise([b - a for a, b in pairwise(late)])]
        of_runs.append(math.sqrt(math.fsum(bend**2 for bend in bends) / len(bends) / 6))
    return statistics.fmean(of_runs) if of_runs else None
