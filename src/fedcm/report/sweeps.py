"""FedCM's runs by α: where the best one lies, and whether any momentum is better than none."""

from collections.abc import Sequence
from typing import NamedTuple

from fedcm.report.differences import of_method
from fedcm.report.digest import Digest
from fedcm.report.groups import Entry, one_a_seed, surroundings, title_of
from fedcm.report.words import accuracy, score

_NEAR = (0.03, 0.3)  # "about 0.1": between its neighbours among the paper's values of α, that are far from the best
Found = tuple[bool, str]  # does it hold there, and the numbers


class Sweep(NamedTuple):
    """Finished runs whose settings are equal but for α and the seed."""

    where: str
    entries: dict[float, Entry]  # by α, in order


def sweeps_of(digests: Sequence[Digest]) -> list[Sweep]:
    found: dict[tuple[tuple[str, str], ...], dict[float, list[Digest]]] = {}
    for run in digests:
        alpha = run.experiment["algorithm"].get("alpha")
        if run.algorithm == "fedcm" and isinstance(alpha, int | float):
            rest = tuple(sorted(item for item in of_method(run).items() if item[0] != "algorithm.alpha"))
            found.setdefault(rest, {}).setdefault(float(alpha), []).append(run)
    sweeps = []
    for by_alpha in found.values():
        entries = {alpha: Entry(tuple(one_a_seed(runs))) for alpha, runs in sorted(by_alpha.items())}
        finished = {alpha: entry for alpha, entry in entries.items() if entry.judged}
        if len(finished) > 1:
            one = next(iter(finished.values())).runs[0]
            sweeps.append(Sweep(f"{title_of(one)}, {' · '.join(surroundings(one).values())}", finished))
    return sweeps


def inner_optimum(sweep: Sweep) -> Found:
    entries = sweep.entries
    best = max(entries, key=lambda alpha: score(entries[alpha]))
    inner = min(entries) < best < max(entries)
    return inner and _NEAR[0] < best < _NEAR[1], f"{sweep.where}: best at α = {best:g} of {_by_alpha(sweep)}"


def beats_one(sweep: Sweep) -> Found:
    one = score(sweep.entries[1.0])
    held = all(score(entry) > one for alpha, entry in sweep.entries.items() if alpha < 1)
    return held, f"{sweep.where}: {_by_alpha(sweep)}"


def _by_alpha(sweep: Sweep) -> str:
    return ", ".join(f"{alpha:g}: {accuracy(entry)}" for alpha, entry in sweep.entries.items())
