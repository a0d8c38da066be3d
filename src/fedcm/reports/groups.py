"""Runs put into tables: a table for each data set and model, a row for each algorithm, a column for each cell.

Runs are averaged only where they differ in nothing but their seed. Where runs of one algorithm in one cell differ in a
setting, each value has a row of its own; runs of other lengths stand in other columns. One algorithm alone has a row
for each cell.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, final

from fedcm.reports.differences import differing, of_method, told
from fedcm.reports.digest import Digest
from fedcm.reports.entry import MAIN, MEASURES, Entry
from fedcm.reports.metric import ACCURACY, Metric, choose_metric, write_averaged_rounds

TITLES = {"fedcm": "FedCM", "fedavg": "FedAvg", "fedadam": "FedAdam", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}
_STATES = ("finished", "diverged", "running", "stopped")  # which of two runs with one seed counts


@final
@dataclass(frozen=True)
class Row:
    label: str
    algorithm: str
    entries: dict[str, Entry]  # by the cell's name


@final
@dataclass(frozen=True)
class Cell:
    name: str
    labels: dict[str, str]  # given, or made from split and participation; with the rounds where these differ


@final
@dataclass(frozen=True)
class Group:
    """The runs on one data set with one model whose cells have the same labels."""

    title: str
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    metric: Metric = ACCURACY

    def leaders(self, cell: str, measure: str = MAIN) -> set[str]:
        """The labels of the rows with the best mean, as it is written, among those that are over, where there is a
        choice. Rows that diverged are among those that are beaten."""
        judged = [row for row in self.rows if cell in row.entries and row.entries[cell].judged]
        means = {
            row.label: self.metric.gain(float(self.metric.write(mean)))
            for row in judged
            if (mean := row.entries[cell].mean(measure)) is not None
        }
        return {label for label, mean in means.items() if mean == max(means.values())} if len(judged) > 1 else set()

    def describe_measure(self, measure: str = MAIN, cell: str | None = None) -> str:
        """In words; of one cell or of the whole table."""
        if measure != MAIN:
            return MEASURES[measure]
        return write_averaged_rounds(self._list_averaged_rounds(cell))

    def _list_averaged_rounds(self, cell: str | None) -> frozenset[int]:
        there = [row.entries[c] for row in self.rows for c in row.entries if cell in (None, c)]
        return frozenset(rounds for entry in there for rounds in entry.averaged_rounds)

    @property
    def is_averaged_alike(self) -> bool:
        """Is the main measure over as many rounds in every cell that has one?"""
        return len({rounds for cell in self.cells if (rounds := self._list_averaged_rounds(cell.name))}) < 2


def grouped(digests: Iterable[Digest]) -> list[Group]:
    tables: dict[tuple[str, ...], list[Digest]] = {}
    for digest in (place for run in digests for place in run.in_every_cell):
        model = json.dumps(_not_swept(digest, "model"), sort_keys=True, default=str)
        source = _not_swept(digest, "data").get("source", "")
        tables.setdefault((source, model, *sorted(digest.labels)), []).append(digest)
    titles = [title_of(runs[0]) for runs in tables.values()]
    groups = []
    for runs, title in zip(tables.values(), titles, strict=True):
        names = ", ".join(runs[0].labels)
        groups.append(_group(runs, title if titles.count(title) == 1 or not names else f"{title}, by {names}"))
    return groups


def algorithm_title(name: str) -> str:
    return TITLES.get(name, name)


def _group(runs: Sequence[Digest], title: str) -> Group:
    cells: dict[str, Cell] = {}
    places: dict[tuple[str, str], list[Digest]] = {}  # (algorithm, cell)
    lengths = {run.experiment["rounds"] for run in runs}
    for run in runs:
        labels = run.labels or surroundings(run)
        if len(lengths) > 1:
            labels = {**labels, "rounds": f"{run.experiment['rounds']} rounds"}
        cell = Cell(_cell_name(labels), labels)
        cells.setdefault(cell.name, cell)
        places.setdefault((run.algorithm, cell.name), []).append(run)
    paths: dict[str, dict[str, None]] = {}  # in which each algorithm's runs differ within any one cell
    for (algorithm, _), there in places.items():
        paths.setdefault(algorithm, {}).update(dict.fromkeys(differing(map(of_method, there))))
    rows: dict[tuple[str, str], dict[str, list[Digest]]] = {}
    for (algorithm, cell), there in places.items():
        for run in there:
            settings = of_method(run)
            words = ", ".join(told(path, settings.get(path)) for path in paths[algorithm])
            label = f"{algorithm_title(algorithm)} ({words})" if words else algorithm_title(algorithm)
            rows.setdefault((algorithm, label), {}).setdefault(cell, []).append(run)
    ordered = sorted(rows, key=lambda row: (_rank(row[0]), row[0], _natural(row[1])))
    metric = choose_metric((run.accuracy, run.test_losses) for run in runs)
    group = Group(
        title,
        tuple(sorted(cells.values(), key=lambda cell: [_natural(text) for text in cell.labels.values()])),
        tuple(Row(label, name, _entries(rows[name, label], metric)) for name, label in ordered),
        metric,
    )
    return group if len(group.rows) > 1 or len(group.cells) == 1 else _upright(group)


def _upright(group: Group) -> Group:
    """One row with many cells, such as FedCM by α: what differs becomes the rows, to be compared in one picture."""
    (row,) = group.rows
    places = {_cell_name(surroundings(run)) for entry in row.entries.values() for run in entry.runs}
    column = places.pop() if len(places) == 1 else group.metric.title
    rows = [Row(f"{row.label} ({cell.name})", row.algorithm, {column: row.entries[cell.name]}) for cell in group.cells]
    return Group(group.title, (Cell(column, {}),), tuple(rows), group.metric)


def _cell_name(labels: dict[str, str]) -> str:
    """
    >>> _cell_name({"setting": "II", "alpha": "0.1", "model.hidden": "[64, 32]"})
    'II · alpha 0.1 · model.hidden = [64, 32]'
    """
    return " · ".join(_label(axis, text) for axis, text in labels.items())


def _label(axis: str, text: str) -> str:
    if "." in axis:  # a setting that was swept
        return f"{axis} = {text}"
    return f"{axis} {text}" if text.replace(".", "").isdigit() else text


def _entries(by_cell: dict[str, list[Digest]], metric: Metric) -> dict[str, Entry]:
    return {cell: Entry(tuple(one_a_seed(there)), metric) for cell, there in by_cell.items()}


def one_a_seed(runs: Iterable[Digest]) -> list[Digest]:
    """A seed run twice is no second replicate: the one that went further counts, or else the later one."""
    best: dict[int, Digest] = {}
    for run in sorted(runs, key=lambda run: run.started):
        other = best.get(run.seed)
        if other is None or _STATES.index(run.state) <= _STATES.index(other.state):
            best[run.seed] = run
    return [best[seed] for seed in sorted(best)]


def title_of(run: Digest) -> str:
    """What it has in common with the other runs of its table."""
    source, model = _not_swept(run, "data").get("source"), _not_swept(run, "model").get("name")
    name = source if source is None or ":" in source else PurePath(source).stem
    return ", ".join(filter(None, (name, model))) or str(run.experiment.get("name", "runs"))


def _not_swept(run: Digest, section: str) -> dict[str, Any]:
    """Settings that a sweep varies belong to the columns of its table."""
    return {key: value for key, value in run.experiment[section].items() if f"{section}.{key}" not in run.labels}


def surroundings(run: Digest) -> dict[str, str]:
    """What a run without labels stands under: how its data are split and who takes part."""
    split, participation = run.experiment["split"], run.experiment.get("participation", {})
    words = [split["kind"], *(str(split[key]) for key in ("concentration", "per_client") if key in split)]
    labels = {"clients": f"{split['clients']} clients"} if "clients" in split else {}
    kind = participation.get("kind", "everyone")
    how = {
        "independent": f"p = {participation.get('probability')}",
        "fixed": f"{participation.get('clients')} a round",
    }
    return labels | {"participation": how.get(kind, kind), "split": " ".join(words)}


def _rank(algorithm: str) -> int:
    return list(TITLES).index(algorithm) if algorithm in TITLES else len(TITLES)


def _natural(text: str) -> list[tuple[int, float, str]]:
    """Words in an order that a person expects: IID first, then numbers by their size.

    >>> sorted(["dirichlet 0.6", "iid", "10 clients", "9 clients"], key=_natural)
    ['iid', '9 clients', '10 clients', 'dirichlet 0.6']
    """
    found: list[tuple[int, float, str]] = []
    for word in text.split():
        try:
            found.append((1, float(word.strip("[](),%")), ""))
        except ValueError:
            found.append((0 if word.lower() == "iid" else 2, 0.0, word))
    return found
