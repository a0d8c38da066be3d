"""FedCM's runs by α: where the best one lies, and whether any momentum is better than none."""

from collections.abc import Sequence
from typing import NamedTuple

from fedcm.reports.claims.contrast import Contrast, contrast
from fedcm.reports.claims.verdicts import Finding, find
from fedcm.reports.differences import of_method
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import one_a_seed, surroundings, title_of
from fedcm.reports.metric import LOSS, choose_metric
from fedcm.reports.words import write_difference

_NEAR = (0.03, 0.3)  # "about 0.1": between its neighbours among the paper's values of α, that are far from the best


class Sweep(NamedTuple):
    """Finished runs whose settings are equal but for α and the seed."""

    where: str
    entries: dict[float, Entry]  # by α, in order


def list_sweeps(digests: Sequence[Digest]) -> list[Sweep]:
    found: dict[tuple[tuple[str, str], ...], dict[float, list[Digest]]] = {}
    for run in digests:
        alpha = run.experiment["algorithm"].get("alpha")
        if run.algorithm == "fedcm" and isinstance(alpha, int | float):
            rest = tuple(sorted(item for item in of_method(run).items() if item[0] != "algorithm.alpha"))
            found.setdefault(rest, {}).setdefault(float(alpha), []).append(run)
    sweeps = []
    for by_alpha in found.values():
        metric = choose_metric((run.accuracy, run.test_losses) for runs in by_alpha.values() for run in runs)
        entries = {alpha: Entry(tuple(one_a_seed(runs)), metric) for alpha, runs in sorted(by_alpha.items())}
        finished = {alpha: entry for alpha, entry in entries.items() if entry.judged}
        if len(finished) > 1:
            one = next(iter(finished.values())).runs[0]
            sweeps.append(Sweep(f"{title_of(one)}, {' · '.join(surroundings(one).values())}", finished))
    return sweeps


def has_value_near(sweep: Sweep) -> bool:
    return any(map(_is_near, sweep.entries))


def find_inner_optimum(sweep: Sweep) -> Finding:
    """The best of the values near 0.1 that have others on both sides, against all values that are not such.

    What is near 0.1 need not be told apart: 0.05 and 0.1 may be as good. The claim is contradicted by a value far from
    0.1 that is better than every one near it.
    """
    tried = list(sweep.entries)
    inner = [alpha for alpha in tried[1:-1] if _is_near(alpha)]
    near, far = [a for a in tried if _is_near(a)], [a for a in tried if not _is_near(a)]
    refuting = tuple(tuple(_compare(sweep, alpha, other) for alpha in near) for other in far)
    if not inner:
        said = "no value near 0.1 lies between others"
        return Finding(f"{sweep.where}: {said}, of {_write(sweep)}", (), refuting)
    best = max(inner, key=lambda alpha: _gain(sweep, alpha))
    against = {other: _compare(sweep, best, other) for other in tried if other not in inner}
    closest = max(against, key=lambda alpha: _gain(sweep, alpha))
    said = f"{sweep.where}: α = {best:g} against {closest:g}, the best of those not near 0.1 or at an end"
    return Finding(
        f"{said}: {_describe(sweep, against[closest])}, of {_write(sweep)}",
        tuple(against.values()),
        refuting,
        len(inner),
    )


def find_lead_over_one(sweep: Sweep) -> Finding:
    against = {alpha: _compare(sweep, alpha, 1.0) for alpha in sweep.entries if alpha < 1}
    closest = min(against, key=lambda alpha: _gain(sweep, alpha))
    said = f"{sweep.where}: α = {closest:g} against 1: {_describe(sweep, against[closest])}, of {_write(sweep)}"
    return find(said, list(against.values()))


def _is_near(alpha: float) -> bool:
    return _NEAR[0] < alpha < _NEAR[1]


def _compare(sweep: Sweep, alpha: float, other: float) -> Contrast:
    one, two = sweep.entries[alpha], sweep.entries[other]
    return contrast([(1, one.gains()), (-1, two.gains())], relative=one.metric is LOSS)


def _gain(sweep: Sweep, alpha: float) -> float:
    """What diverged is below everything."""
    entry = sweep.entries[alpha]
    mean = entry.mean()
    return -float("inf") if mean is None else entry.metric.gain(mean)


def _describe(sweep: Sweep, found: Contrast) -> str:
    return write_difference(found, next(iter(sweep.entries.values())).metric) or "diverged"


def _write(sweep: Sweep) -> str:
    return ", ".join(f"{alpha:g}: {entry.write()}" for alpha, entry in sweep.entries.items())
