"""How many points FedCM and others lose from one cell to another that differs in one thing."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from fedcm.reports.claims.contrast import Contrast, contrast
from fedcm.reports.claims.standings import HERO, list_algorithms, list_rivals, list_speakers
from fedcm.reports.claims.verdicts import Finding, find
from fedcm.reports.groups import Cell, Group, Row, algorithm_title
from fedcm.reports.words import signed, write_difference

Pair = tuple[Row, Row]  # an algorithm's row in the first cell and in the second


def find_drops(
    group: Group, is_pair: Callable[[Cell, Cell], bool], compared: Sequence[str] | None = None
) -> Iterator[Finding]:
    """A finding for each pair of cells, as the paper has it: FedCM against the algorithms compared, or all others."""
    for before in group.cells:
        for after in group.cells:
            if is_pair(before, after):
                yield from _find_drop(group, before.name, after.name, compared)


def _find_drop(group: Group, before: str, after: str, compared: Sequence[str] | None) -> Iterator[Finding]:
    for own in _list_pairs(group, before, after, HERO):
        drops = {_label(own): _drop(own, before, after)}
        against: dict[str, Contrast] = {}
        for algorithm in list_algorithms(group, before):
            for rival in _list_rival_pairs(group, before, after, algorithm, own):
                drops[_label(rival)] = _drop(rival, before, after)
                if compared is None or algorithm in compared:
                    against[_label(rival)] = _compare(own, rival, before, after)
        if against:
            ordered = sorted(drops.items(), key=lambda item: item[1])
            words = ", ".join(f"{label} {_write_drop(drop)}" for label, drop in ordered)
            closest = min(against, key=lambda label: _rank(against[label]))
            difference = write_difference(against[closest])
            less = f"; FedCM against {closest}: {difference}" if difference else ""
            title = f"{group.title}: " if group.title else ""
            yield find(f"{title}{before} to {after}: {words}{less}", list(against.values()))


def _list_pairs(group: Group, before: str, after: str, algorithm: str) -> list[Pair]:
    """The rows that speak for an algorithm in both cells, or one in each where its settings change with the cell."""
    first, second = list_speakers(group, before, algorithm), list_speakers(group, after, algorithm)
    labels = {row.label for row in second}
    pairs = [(row, row) for row in first if row.label in labels]
    if not pairs and len(first) == len(second) == 1:
        pairs = [(first[0], second[0])]
    return [pair for pair in pairs if not pair[0].entries[before].diverged]  # it has nothing left to lose


def _list_rival_pairs(group: Group, before: str, after: str, algorithm: str, own: Pair) -> list[Pair]:
    """Like with like, where there is such."""
    pairs = _list_pairs(group, before, after, algorithm)
    labels = {row.label for row in list_rivals(group, before, algorithm, own[0])}
    return [pair for pair in pairs if pair[0].label in labels] or pairs


def _compare(own: Pair, rival: Pair, before: str, after: str) -> Contrast:
    """What the rival loses beyond what FedCM does."""
    return contrast(
        [
            (1, rival[0].entries[before].gains()),
            (-1, rival[1].entries[after].gains()),
            (-1, own[0].entries[before].gains()),
            (1, own[1].entries[after].gains()),
        ]
    )


def _drop(pair: Pair, before: str, after: str) -> float:
    first, second = pair[0].entries[before].gains(), pair[1].entries[after].gains()
    return statistics.fmean(first.values()) - statistics.fmean(second.values())


def _rank(found: Contrast) -> float:
    return -math.inf if math.isnan(found.difference) else found.difference


def _label(pair: Pair) -> str:
    return pair[0].label if pair[0] is pair[1] else algorithm_title(pair[0].algorithm)


def _write_drop(points: float) -> str:
    return signed(-points) if math.isfinite(points) else "diverged"


def is_one_to_two(a: Cell, b: Cell) -> bool:
    """From setting I to setting II, and nothing else?"""
    return (_setting(a), _setting(b)) == ("I", "II") and (_split(a), _others(a)) == (_split(b), _others(b))


def is_iid_to_dirichlet(a: Cell, b: Cell) -> bool:
    uneven = _split(a) == "iid" and _split(b).startswith("dir")
    return uneven and (_setting(a), _others(a)) == (_setting(b), _others(b))


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
