"""How much a curve goes up and down about its trend."""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from fedcm.reports.claims.contrast import contrast
from fedcm.reports.claims.verdicts import Finding, find
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.words import write_difference

EVALUATIONS = 8  # in the second half of a curve, before it is said to oscillate or not


def measure_oscillation(accuracies: Sequence[float]) -> float | None:
    """How far single evaluations lie off the trend, in points, over the second half of the curve.

    Of values with independent errors of deviation s about a straight line, a second difference has the deviation √6·s.
    None of a curve that is too short.
    """
    late = [100 * value for value in accuracies[len(accuracies) // 2 :]]
    if len(late) < EVALUATIONS:
        return None
    bends = [after - before for before, after in pairwise([b - a for a, b in pairwise(late)])]
    return math.sqrt(math.fsum(bend**2 for bend in bends) / len(bends) / 6)


def list_oscillations(entry: Entry) -> dict[int, float] | None:
    """By seed; None where a run diverged or is too short to tell."""
    if entry.diverged:
        return None
    found: dict[int, float] = {}
    for run in entry.counted:
        value = measure_oscillation([value for _, value in _list_evaluations(run)])
        if value is None:
            return None
        found[run.seed] = value
    return found


def _list_evaluations(run: Digest) -> list[tuple[int, float]]:
    """Rounds and accuracies."""
    pairs = zip(run.curve.round, run.curve.test_accuracy, strict=True)
    return [(round, value) for round, value in pairs if value is not None]


def _list_spacings(entry: Entry) -> set[int]:
    """The rounds from one evaluation to the next, over the second half of the curves; the last may come early."""
    found: set[int] = set()
    for run in entry.counted:
        rounds = [round for round, _ in _list_evaluations(run)]
        found |= {after - before for before, after in pairwise(rounds[len(rounds) // 2 : -1])}
    return found


def find_oscillation(where: str, own: tuple[str, Entry], *others: tuple[str, Entry]) -> Finding | None:
    """Do the others' curves oscillate more than one's own? Each is (label, runs).

    Compared are curves that were evaluated in the same rounds: the rarer the evaluations, the more a trend bends
    between them."""
    least, spacings = list_oscillations(own[1]), _list_spacings(own[1])
    alike = [(label, entry) for label, entry in others if len(spacings) == 1 and _list_spacings(entry) == spacings]
    measured = {label: values for label, entry in alike if (values := list_oscillations(entry))}
    if least is None or not measured:
        return None
    against = {label: contrast([(1, values), (-1, least)]) for label, values in measured.items()}
    means = {label: statistics.fmean(values.values()) for label, values in {**measured, own[0]: least}.items()}
    ordered = sorted(means.items(), key=lambda item: -item[1])
    words = ", ".join(f"{label} ±{value:.2f}" for label, value in ordered)
    differences = ", ".join(write_difference(found) for found in against.values())
    return find(f"{where}: {words} points about the trend, {differences}", list(against.values()))
