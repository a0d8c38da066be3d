"""What it took to reach given accuracies: rounds and bytes, read off the curves."""

import statistics
from typing import NamedTuple

from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import Group

_TARGETS = 4  # columns at most: the highest that anybody reached


class Cost(NamedTuple):
    """Means over the runs that reached the accuracy."""

    rounds: float
    bytes: float  # down and up
    reached: int
    runs: int


def targets_of(group: Group) -> list[float]:
    """The accuracies that the experiments name and at least one run reached."""
    runs = [run for row in group.rows for entry in row.entries.values() for run in entry.runs]
    named = {target for run in runs for target in _named(run)}
    return sorted(target for target in named if any(_reach(run, target) for run in runs))[-_TARGETS:]


def cost(entry: Entry, target: float) -> Cost | None:
    found = [reach for run in entry.runs if (reach := _reach(run, target))]
    if not found:
        return None
    rounds, sent = (statistics.fmean(column) for column in zip(*found, strict=True))
    return Cost(rounds, sent, len(found), len(entry.runs))


def _reach(run: Digest, target: float) -> tuple[int, int] | None:
    curve = run.curve
    for k, accuracy in enumerate(curve.test_accuracy):
        if accuracy is not None and accuracy >= target - 5e-7:  # a digest's curve is rounded
            return curve.round[k], curve.bytes_down[k] + curve.bytes_up[k]
    return None


def _named(run: Digest) -> list[float]:
    evaluation = run.experiment.get("evaluation")
    targets = evaluation.get("targets") if isinstance(evaluation, dict) else None
    return [t for t in targets if isinstance(t, float)] if isinstance(targets, list) else []
