"""How many points FedCM and other algorithms lose from one cell to another that differs in one thing."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from fedcm.reports.claims.contrast import Contrast, compare, format_difference
from fedcm.reports.claims.representatives import FEDCM, list_other_algorithms, list_representatives, list_rivals
from fedcm.reports.claims.verdicts import Observation, observe
from fedcm.reports.groups import Group, ResultCell, ResultRow, get_algorithm_title
from fedcm.system.formatting import format_signed

RowPair = tuple[ResultRow, ResultRow]  # an algorithm's row in the first cell and in the second


def observe_drops(
    group: Group, is_pair: Callable[[ResultCell, ResultCell], bool], rivals: Sequence[str] | None = None
) -> Iterator[Observation]:
    """Compare what FedCM and others lose, in each pair of cells.

    Args:
        group: The table.
        is_pair: Whether two cells differ in the one thing that the claim is about.
        rivals: The algorithms to compare FedCM with; all by default.
    """
    for before in group.cells:
        for after in group.cells:
            if is_pair(before, after):
                yield from _observe_pair(group, before.name, after.name, rivals)


def is_setting_one_to_two(first: ResultCell, second: ResultCell) -> bool:
    """Return whether the cells differ only in the paper's setting, I and II."""
    settings = _get_setting(first), _get_setting(second)
    same_split = _get_split(first) == _get_split(second)
    return settings == ("I", "II") and same_split and _list_other_labels(first) == _list_other_labels(second)


def is_iid_to_dirichlet(first: ResultCell, second: ResultCell) -> bool:
    """Return whether the cells differ only in the split, IID and Dirichlet."""
    splits_differ = _get_split(first) == "iid" and _get_split(second).startswith("dir")
    same_setting = _get_setting(first) == _get_setting(second)
    return splits_differ and same_setting and _list_other_labels(first) == _list_other_labels(second)


def _observe_pair(group: Group, before: str, after: str, rivals: Sequence[str] | None) -> Iterator[Observation]:
    for own in _list_pairs(group, before, after, FEDCM):
        drops = {_get_label(own): _measure_drop(own, before, after)}
        contrasts: dict[str, Contrast] = {}
        for algorithm in list_other_algorithms(group, before):
            for rival in _list_rival_pairs(group, before, after, algorithm, own):
                drops[_get_label(rival)] = _measure_drop(rival, before, after)
                if rivals is None or algorithm in rivals:
                    contrasts[_get_label(rival)] = _compare(own, rival, before, after)
        if contrasts:
            ordered = sorted(drops.items(), key=lambda item: item[1])
            drops_text = ", ".join(f"{label} {_format_drop(drop)}" for label, drop in ordered)
            closest = min(contrasts, key=lambda label: _rank(contrasts[label]))
            difference = format_difference(contrasts[closest])
            lead = f"; FedCM against {closest}: {difference}" if difference else ""
            title = f"{group.title}: " if group.title else ""
            yield observe(f"{title}{before} to {after}: {drops_text}{lead}", list(contrasts.values()))


def _list_pairs(group: Group, before: str, after: str, algorithm: str) -> list[RowPair]:
    """Return the rows that represent an algorithm in both cells, or one row of each if its settings change."""
    first, second = list_representatives(group, before, algorithm), list_representatives(group, after, algorithm)
    labels = {row.label for row in second}
    pairs = [(row, row) for row in first if row.label in labels]
    if not pairs and len(first) == len(second) == 1:
        pairs = [(first[0], second[0])]
    return [pair for pair in pairs if not pair[0].entries[before].divergence]  # diverged runs cannot lose points


def _list_rival_pairs(group: Group, before: str, after: str, algorithm: str, own: RowPair) -> list[RowPair]:
    """Return the pairs with the same settings as FedCM's, or all if there are none."""
    pairs = _list_pairs(group, before, after, algorithm)
    labels = {row.label for row in list_rivals(group, before, algorithm, own[0])}
    return [pair for pair in pairs if pair[0].label in labels] or pairs


def _compare(own: RowPair, rival: RowPair, before: str, after: str) -> Contrast:
    """Return how much more the rival loses than FedCM."""
    return compare(
        [
            (1, rival[0].entries[before].list_gains()),
            (-1, rival[1].entries[after].list_gains()),
            (-1, own[0].entries[before].list_gains()),
            (1, own[1].entries[after].list_gains()),
        ]
    )


def _measure_drop(pair: RowPair, before: str, after: str) -> float:
    first, second = pair[0].entries[before].list_gains(), pair[1].entries[after].list_gains()
    return statistics.fmean(first.values()) - statistics.fmean(second.values())


def _rank(contrast: Contrast) -> float:
    return -math.inf if math.isnan(contrast.difference) else contrast.difference


def _get_label(pair: RowPair) -> str:
    return pair[0].label if pair[0] is pair[1] else get_algorithm_title(pair[0].algorithm)


def _format_drop(points: float) -> str:
    return format_signed(-points) if math.isfinite(points) else "diverged"


def _get_setting(cell: ResultCell) -> str:
    """Return the paper's name of a setting, from the cell's labels or from its clients and participation."""
    labels = _list_labels(cell)
    if "setting" in labels:
        return {"1": "I", "2": "II"}.get(labels["setting"], labels["setting"].upper())
    shape = labels.get("clients", ""), labels.get("participation", "")
    return {("100 clients", "p = 0.1"): "I", ("500 clients", "p = 0.02"): "II"}.get(shape, " ".join(shape))


def _get_split(cell: ResultCell) -> str:
    return _list_labels(cell).get("split", "").lower()


def _list_other_labels(cell: ResultCell) -> dict[str, str]:
    known = ("setting", "split", "clients", "participation")
    return {name: text for name, text in _list_labels(cell).items() if name not in known}


def _list_labels(cell: ResultCell) -> dict[str, str]:
    return {name.lower(): text for name, text in cell.labels.items()}
