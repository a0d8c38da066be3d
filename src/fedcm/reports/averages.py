"""A curve over seeds: mean and deviation at every round that any of them evaluated."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from fedcm.reports.digest import Curve

SHOWN = ("test_accuracy", "test_loss", "train_loss")
AGAINST = ("bytes_down", "bytes_up", "seconds")


class Average(NamedTuple):
    """`mean[name]` and `deviation[name]` run along `round`; where one curve alone is left, there is no deviation."""

    round: list[int]
    mean: dict[str, list[float | None]]
    deviation: dict[str, list[float | None]]


def averaged(curves: Sequence[Curve]) -> Average:
    at: dict[int, list[tuple[Curve, int]]] = {}
    for curve in curves:
        for k, round in enumerate(curve.round):
            at.setdefault(round, []).append((curve, k))
    rounds = sorted(at)
    mean: dict[str, list[float | None]] = {}
    deviation: dict[str, list[float | None]] = {}
    for name in SHOWN + AGAINST:
        columns = [[getattr(curve, name)[k] for curve, k in at[round]] for round in rounds]
        values = [[value for value in column if value is not None] for column in columns]
        mean[name] = [statistics.fmean(there) if there else None for there in values]
        if name in SHOWN:
            deviation[name] = [statistics.stdev(there) if len(there) > 1 else None for there in values]
    return Average(rounds, mean, deviation)
