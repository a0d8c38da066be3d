"""What the FedCM paper claims beyond single cells, held against the runs: seen, not seen, or not tested.

Runs that go on do not count; one that diverged has lost to every other; a tie is no win. Where an algorithm has several
rows in a cell, the one that stands in the most cells speaks for it: the best would be chosen by the test set.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

from fedcm.report.digest import Digest
from fedcm.report.groups import Cell, Entry, Group, algorithm_title
from fedcm.report.oscillation import EVALUATIONS, oscillation
from fedcm.report.sweeps import Found, beats_one, inner_optimum, sweeps_of
from fedcm.report.words import accuracy, score, several, signed

Verdict = Literal["seen", "not seen", "not tested"]
_HERO = "fedcm"


@final
@dataclass(frozen=True)
class Claim:
    text: str
    verdict: Verdict
    evidence: tuple[str, ...]  # a line for each place where it was looked for


class Place(NamedTuple):
    where: str
    standings: dict[str, Entry]  # by algorithm


def claims(groups: Sequence[Group], digests: Sequence[Digest]) -> list[Claim]:
    sweeps = sweeps_of(digests)
    groups = groups if len(groups) > 1 else [replace(group, title="") for group in groups]  # nothing to tell apart
    return [
        _of_paper(
            "FedCM is the most accurate in every cell",
            "needs FedCM and another algorithm in a cell, finished",
            _places(groups, lambda place: len(place.standings) > 1),
            _best,
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
        _of_paper(
            "FedAdam's curve oscillates more than FedCM's",
            f"needs both in a cell, with {2 * EVALUATIONS} evaluations or more",
            _places(groups, lambda place: {"fedadam", _HERO} <= set(_measured(place))),
            _oscillates,
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
        if entry is None or not entry.judged:
            continue
        candidate = len(row.entries), score(entry), entry
        if row.algorithm not in found or candidate[:2] > found[row.algorithm][:2]:
            found[row.algorithm] = candidate
    return {algorithm: entry for algorithm, (_, _, entry) in found.items()}


def _of_paper(text: str, needs: str, places: Sequence[Place], judge: Callable[[Place], Found]) -> Claim:
    """The paper speaks of its own cells: where some have a published figure of FedCM, the others do not count."""
    of_paper = [place for place in places if place.standings[_HERO].published is not None]
    claim = _judged(text, [judge(place) for place in of_paper or places], needs)
    others = len(places) - len(of_paper)
    if not (of_paper and others):
        return claim
    aside = f"– {several(others, 'cell')} without a published figure of FedCM aside"
    return replace(claim, evidence=(*claim.evidence, aside))


def _places(groups: Sequence[Group], rivals: Callable[[Place], object]) -> list[Place]:
    """The cells in which FedCM has finished, and such rivals too."""
    everywhere = (Place(_where(g, cell), _standings(g, cell.name)) for g in groups for cell in g.cells)
    return [place for place in everywhere if _HERO in place.standings and rivals(place)]


def _best(place: Place) -> Found:
    own, standings = place.standings[_HERO], {k: v for k, v in place.standings.items() if k != _HERO}
    rival = max(standings, key=lambda name: score(standings[name]))
    margin = score(own) - score(standings[rival])
    said = f"{place.where}: FedCM {accuracy(own)}, next {algorithm_title(rival)} {accuracy(standings[rival])}"
    if math.isfinite(margin):
        said += f", {signed(margin)} points{_caution(margin, own, standings[rival])}"
    return margin > 0, said


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
    held = all(sum(losses[rival] - losses[_HERO] for _, losses in places if rival in losses) > 0 for rival in rivals)
    said = "; ".join(f"{where}: {_points(losses)}" for where, losses in places)
    yield held, f"{group.title}: {said}" if group.title else said


def _points(losses: dict[str, float]) -> str:
    ordered = sorted(losses.items(), key=lambda item: item[1])
    words = {name: signed(-loss) if math.isfinite(loss) else "diverged" for name, loss in ordered}
    return ", ".join(f"{algorithm_title(name)} {said}" for name, said in words.items())


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


def _measured(place: Place) -> dict[str, float]:
    """How much each algorithm's curve oscillates."""
    measured = {name: oscillation(entry) for name, entry in place.standings.items()}
    return {name: value for name, value in measured.items() if value is not None}


def _oscillates(place: Place) -> Found:
    found = _measured(place)
    ordered = sorted(found.items(), key=lambda item: -item[1])
    words = ", ".join(f"{algorithm_title(name)} ±{value:.2f}" for name, value in ordered)
    return found["fedadam"] > found[_HERO], f"{place.where}: {words} points about the trend"


def _caution(margin: float, *entries: Entry) -> str:
    deviations = [entry.deviation() for entry in entries]
    known = [deviation for deviation in deviations if deviation is not None]
    if len(known) < len(deviations):
        return " (one seed)"
    return " (within the seeds' spread)" if abs(margin) < math.hypot(*known) else ""


def _where(group: Group, cell: Cell) -> str:
    return f"{group.title}, {cell.name}" if group.title else cell.name
