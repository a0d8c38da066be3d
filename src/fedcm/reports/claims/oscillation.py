"""How much a curve oscillates about its trend."""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from fedcm.reports.claims.contrast import compare, format_difference
from fedcm.reports.claims.verdicts import Observation, observe
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry

MIN_EVALUATIONS = 8  # in the second half of a curve


def measure_oscillation(accuracies: Sequence[float]) -> float | None:
    """Return the deviation of single evaluations from the trend, in points, over the second half of a curve.

    If values have independent errors with deviation s about a straight line, their second differences have the
    deviation √6·s.

    Returns:
        None if the curve is too short.
    """
    late = [100 * value for value in accuracies[len(accuracies) // 2 :]]
    if len(late) < MIN_EVALUATIONS:
        return None
    bends = [after - before for before, after in pairwise([b - a for a, b in pairwise(late)])]
    return math.sqrt(math.fsum(bend**2 for bend in bends) / len(bends) / 6)


def list_oscillations(entry: Entry) -> dict[int, float] | None:
    """Return the oscillation by seed; None if a run diverged or is too short."""
    if entry.divergence:
        return None
    by_seed: dict[int, float] = {}
    for run in entry.counted_runs:
        value = measure_oscillation([value for _, value in _list_evaluations(run)])
        if value is None:
            return None
        by_seed[run.seed] = value
    return by_seed


def observe_oscillation(where: str, own: tuple[str, Entry], *others: tuple[str, Entry]) -> Observation | None:
    """Compare how much the curves of other entries oscillate with one's own.

    Only curves that were evaluated at the same intervals are compared: the rarer the evaluations, the more the trend
    itself bends between them.

    Args:
        where: The cell, for the text.
        own: Label and entry of FedCM.
        others: Labels and entries to compare it with.

    Returns:
        None if there is nothing to compare.
    """
    baseline, spacings = list_oscillations(own[1]), _list_spacings(own[1])
    alike = [(label, entry) for label, entry in others if len(spacings) == 1 and _list_spacings(entry) == spacings]
    measured = {label: values for label, entry in alike if (values := list_oscillations(entry))}
    if baseline is None or not measured:
        return None
    contrasts = {label: compare([(1, values), (-1, baseline)]) for label, values in measured.items()}
    means = {label: statistics.fmean(values.values()) for label, values in {**measured, own[0]: baseline}.items()}
    ordered = sorted(means.items(), key=lambda item: -item[1])
    text = ", ".join(f"{label} ±{value:.2f}" for label, value in ordered)
    differences = ", ".join(format_difference(contrast) for contrast in contrasts.values())
    return observe(f"{where}: {text} points about the trend, {differences}", list(contrasts.values()))


def _list_evaluations(run: Digest) -> list[tuple[int, float]]:
    """Return rounds and accuracies."""
    pairs = zip(run.curve.round, run.curve.test_accuracy, strict=True)
    return [(round, value) for round, value in pairs if value is not None]


def _list_spacings(entry: Entry) -> set[int]:
    """Return the rounds between two evaluations in the second halves of the curves; the last one may be shorter."""
    spacings: set[int] = set()
    for run in entry.counted_runs:
        rounds = [round for round, _ in _list_evaluations(run)]
        spacings |= {after - before for before, after in pairwise(rounds[len(rounds) // 2 : -1])}
    return spacings
