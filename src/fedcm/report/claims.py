"""What the FedCM paper claims beyond single cells, held against the runs: seen, not seen, or not tested.

Runs that go on do not count; one that diverged counts as 0 %; a tie is no win. Where an algorithm has several rows in
a cell, the one that stands in the most cells speaks for it: the best would be chosen by the test set.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, final

from fedcm.report.digest import Digest
from fedcm.report.groups import Cell, Entry, Group, algorithm_title
from fedcm.report.sweeps import Found, beats_one, inner_optimum, sweeps_of
from fedcm.report.words import score, scored, signed

Verdict = Literal["seen", "not seen", "not tested"]
_HERO = "fedcm"
_EVALUATIONS = 8  # in the second half of a curve, before it is said to oscillate or not


@final
@dataclass(frozen=True)
class Claim:
    text: str
    verdict: Verdict
    evidence: tuple[str, ...]  # a line for each place where it was looked for


def claims(groups: Sequence[Group], digests: Sequence[Digest]) -> list[Claim]:
    sweeps = sweeps_of(digests)
    groups = groups if len(groups) > 1 else [replace(group, title="") for group in groups]  # nothing to tell apart
    return [
        _judged(
            "FedCM is the most accurate in every cell",
            [found for group in groups for found in _best(group)],
            "needs FedCM and another algorithm in a cell, finished",
        ),
        _judged(
            "FedCM loses least, in points, when participation falls from setting I to setting II",
            [found for group in groups for found in _losses(group, _from_one_to_two)],
            "needs FedCM and another algorithm, equally long, in setting I (100 clients, 10 %) and II (500, 2 %)",
        ),
        _judged(
            "FedCM loses least, in points, from IID to Dirichlet",
            [found for group in groups for found in _losses(group, _from_iid_to_dirichlet)],
            "needs FedCM and another algorithm, equally long, on an IID and a Dirichlet split over as many clients",
        ),
        _judged(
            "FedAdam's curve oscillates more than FedCM's",
            [found for group in groups for found in _oscillations(group)],
            f"needs both in a cell, with {2 * _EVALUATIONS} evaluations or more",
        ),
        _judged(
            "α has an inner optimum near 0.1",
            [inner_optimum(sweep) for sweep in sweeps if len(sweep.entries) > 2],
            "needs FedCM runs with three values of algorithm.alpha or more, otherwise the same",
        ),
        _judged(
            "Every α < 1 beats α = 1",
            [beats_one(sweep) for sweep in sweeps if 1.0 in sweep.entries],
            "needs FedCM runs with algorithm.alpha = 1 and less, otherwise the same",
        ),
    ]


def _judged(text: str, found: Sequence[Found], needs: str) -> Claim:
    if not found:
        return Claim(text, "not tested", (needs,))
    held = all(ok for ok, _ in found)
    return Claim(text, "seen" if held else "not seen", tuple(f"{'✓' if ok else '✗'} {said}" for ok, said in found))


def _standings(group: Group, cell: str) -> dict[str, Entry]:
    """Each algorithm's finished runs in a cell; of several rows the widest, of equally wide ones the best."""
    found: dict[str, tuple[int, float, Entry]] = {}
    for row in group.rows:
        entry = row.entries.get(cell)
        if entry is None or not entry.over or not entry.values():
            continue
        candidate = len(row.entries), score(entry), entry
        if row.algorithm not in found or candidate[:2] > found[row.algorithm][:2]:
            found[row.algorithm] = candidate
    return {algorithm: entry for algorithm, (_, _, entry) in found.items()}


def _best(group: Group) -> Iterator[Found]:
    for cell in group.cells:
        standings = _standings(group, cell.name)
        if _HERO not in standings or len(standings) < 2:
            continue
        own = standings.pop(_HERO)
        rival = max(standings, key=lambda name: score(standings[name]))
        margin = score(own) - score(standings[rival])
        yield (
            margin > 0,
            f"{_where(group, cell)}: FedCM {scored(own)}, next {algorithm_title(rival)} {scored(standings[rival])}, "
            f"{signed(margin)} points{_caution(margin, own, standings[rival])}",
        )


def _losses(group: Group, pairs: Callable[[Group], Iterator[tuple[Cell, Cell]]]) -> Iterator[Found]:
    """Against each other algorithm, on average over the pairs of cells that both were run in."""
    places: list[tuple[str, dict[str, float]]] = []
    for before, after in pairs(group):
        first, second = _standings(group, before.name), _standings(group, after.name)
        first = {name: entry for name, entry in first.items() if not entry.diverged}  # it has nothing left to lose
        losses = {name: score(first[name]) - score(second[name]) for name in first if name in second}
        if _HERO in losses and len(losses) > 1:
            places.append((f"{before.name} to {after.name}", losses))
    if not places:
        return
    rivals = {name for _, losses in places for name in losses} - {_HERO}
    held = all(
        statistics.fmean(losses[rival] - losses[_HERO] for _, losses in places if rival in losses) > 0
        for rival in rivals
    )
    said = "; ".join(f"{where}: {_points(losses)}" for where, losses in places)
    yield held, f"{group.title}: {said}" if group.title else said


def _points(losses: dict[str, float]) -> str:
    ordered = sorted(losses.items(), key=lambda item: item[1])
    return ", ".join(f"{algorithm_title(name)} {signed(-loss)}" for name, loss in ordered)


def _from_one_to_two(group: Group) -> Iterator[tuple[Cell, Cell]]:
    for a in group.cells:
        for b in group.cells:
            if (_setting(a), _setting(b)) == ("I", "II") and (_split(a), _others(a)) == (_split(b), _others(b)):
                yield a, b


def _from_iid_to_dirichlet(group: Group) -> Iterator[tuple[Cell, Cell]]:
    for a in group.cells:
        for b in group.cells:
            uneven = _split(a) == "iid" and _split(b).startswith("dir")
            if uneven and (_setting(a), _others(a)) == (_setting(b), _others(b)):
                yield a, b


def _setting(cell: Cell) -> str:
    """The paper's name for it, whether the cell's labels give it or its clients and participation do."""
    labels = _labels(cell)
    if "setting" in labels:
        return {"1": "I", "2": "II"}.get(labels["setting"], labels["setting"].upper())
    shape = labels.get("clients", ""), labels.get("participation", "")
    return {("100 clients", "p = 0.1"): "I", ("500 clients", "p = 0.02"): "II"}.get(shape, " ".join(shape))


def _split(cell: Cell) -> str:
    return _labels(cell).get("split", "").lower()


def _others(cell: Cell) -> dict[str, str]:
    known = ("setting", "split", "clients", "participation")
    return {name: text for name, text in _labels(cell).items() if name not in known}


def _labels(cell: Cell) -> dict[str, str]:
    return {name.lower(): text for name, text in cell.labels.items()}


def _oscillations(group: Group) -> Iterator[Found]:
    for cell in group.cells:
        standings = _standings(group, cell.name)
        measured = {name: oscillation(entry) for name, entry in standings.items()}
        found = {name: value for name, value in measured.items() if value is not None}
        if {"fedadam", _HERO} <= set(found):
            ordered = sorted(found.items(), key=lambda item: -item[1])
            words = ", ".join(f"{algorithm_title(name)} ±{value:.2f}" for name, value in ordered)
            yield found["fedadam"] > found[_HERO], f"{_where(group, cell)}: {words} points about the trend"


def oscillation(entry: Entry) -> float | None:
    """How far single evaluations lie off the trend, in points, over the second half of the curve.

    Of values with independent errors of deviation s about a straight line, a second difference has the deviation √6·s.
    """
    of_runs = []
    for run in entry.counted:
        values = [100 * value for value in run.curve.test_accuracy if value is not None]
        late = values[len(values) // 2 :]
        if len(late) < _EVALUATIONS:
            return None
        bends = [after - before for before, after in pairwise([b - a for a, b in pairwise(late)])]
        of_runs.append(math.sqrt(math.fsum(bend**2 for bend in bends) / len(bends) / 6))
    return statistics.fmean(of_runs) if of_runs else None


def _caution(margin: float, *entries: Entry) -> str:
    deviations = [entry.deviation() for entry in entries]
    known = [deviation for deviation in deviations if deviation is not None]
    if len(known) < len(deviations):
        return " (one seed)"
    return " (within the seeds' spread)" if abs(margin) < math.hypot(*known) else ""


def _where(group: Group, cell: Cell) -> str:
    return f"{group.title}, {cell.name}" if group.title else cell.name
