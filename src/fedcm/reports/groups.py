"""Put runs into tables: one table per dataset and model, one row per algorithm, one column per cell.

Runs are averaged only if they differ only in their seed. If runs of one algorithm in one cell differ in a setting, each
value has a row. Runs of different lengths are in different columns. A table of one algorithm has one row per cell.
Runs with personal layers and runs without are in one table if all of them have results of single clients.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, final

from fedcm.reports.differences import format_setting, list_differing_settings, list_method_settings
from fedcm.reports.digest import Digest
from fedcm.reports.entry import MAIN, MEASURES, Entry, find_run_cost
from fedcm.reports.metric import ACCURACY, Metric, choose_metric, describe_averaged_rounds

TITLES = {"fedcm": "FedCM", "fedavg": "FedAvg", "fedadam": "FedAdam", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}
_STATES = ("finished", "diverged", "running", "stopped")  # of two runs with one seed, the earlier state counts
MAX_CURVES = 12  # of a cell that are all shown; of more, the main rows are shown first
_MAIN_ROWS = 10
_MAIN_ALGORITHMS = ("fedcm", "fedavg")  # always among the main rows
_MAX_TARGETS = 4  # columns of the cost table
_PERSONAL = "personal"  # the setting of a model


@final
@dataclass(frozen=True)
class ResultRow:
    """A row of a table: one algorithm with its settings."""

    label: str
    algorithm: str
    entries: dict[str, Entry]  # by the cell's name


@final
@dataclass(frozen=True)
class ResultCell:
    """A column of a table."""

    name: str
    labels: dict[str, str]  # the runs' labels, or their split and participation; with the rounds if these differ


@final
@dataclass(frozen=True)
class Group:
    """A table: the runs on one dataset with one model whose cells have the same labels."""

    title: str
    cells: tuple[ResultCell, ...]
    rows: tuple[ResultRow, ...]
    metric: Metric = ACCURACY

    def list_leaders(self, cell: str, measure: str = MAIN) -> set[str]:
        """Return the labels of the rows with the best mean as it is shown; none if there are not two rows to compare.

        Only finished entries count. Diverged rows count as worse than all others.
        """
        rows = [row for row in self.rows if cell in row.entries and row.entries[cell].is_comparable]
        means = {
            row.label: self.metric.to_gain(float(self.metric.format(mean)))
            for row in rows
            if (mean := row.entries[cell].mean(measure)) is not None
        }
        return {label for label, mean in means.items() if mean == max(means.values())} if len(rows) > 1 else set()

    def list_main_rows(self, cell: str) -> list[ResultRow]:
        """Return the rows whose curves are shown first: all of up to 12, else FedCM, FedAvg and the best others."""
        rows = [row for row in self.rows if cell in row.entries]
        if len(rows) <= MAX_CURVES:
            return rows
        means = {row.label: row.entries[cell].mean() for row in rows}
        worst = float("-inf")
        gains = {label: worst if mean is None else self.metric.to_gain(mean) for label, mean in means.items()}
        ordered = sorted(rows, key=lambda row: -gains[row.label])
        main = [next((row for row in ordered if row.algorithm == name), None) for name in _MAIN_ALGORITHMS]
        labels = list(dict.fromkeys(row.label for row in (*main, *ordered) if row))[:_MAIN_ROWS]
        return [row for row in rows if row.label in labels]

    def describe_measure(self, measure: str = MAIN, cell: str | None = None) -> str:
        """Describe which rounds a measure uses, in one cell or in the whole table."""
        if measure != MAIN:
            return MEASURES[measure]
        return describe_averaged_rounds(self._list_averaged_rounds(cell))

    def _list_averaged_rounds(self, cell: str | None) -> frozenset[int]:
        entries = [row.entries[name] for row in self.rows for name in row.entries if cell in (None, name)]
        return frozenset(rounds for entry in entries for rounds in entry.averaged_rounds)

    @property
    def has_uniform_averaging(self) -> bool:
        """Whether the main measure averages equally many rounds in all cells."""
        return len({rounds for cell in self.cells if (rounds := self._list_averaged_rounds(cell.name))}) < 2

    def list_runs(self) -> list[Digest]:
        """Return all runs of the table."""
        return [run for row in self.rows for entry in row.entries.values() for run in entry.runs]

    def list_reached_targets(self) -> list[float]:
        """Return the highest accuracies in the runs' `evaluation.targets` that at least one run reached."""
        runs = self.list_runs()
        targets = {target for run in runs for target in _list_targets(run)}
        return sorted(target for target in targets if any(find_run_cost(run, target) for run in runs))[-_MAX_TARGETS:]


def group_runs(digests: Iterable[Digest]) -> list[Group]:
    """Put runs into tables. A run that several sweeps used is in the table of each."""
    tables: dict[tuple[str, ...], list[Digest]] = {}
    for digest in (placement for run in digests for placement in run.list_placements()):
        model = _list_constant_settings(digest, "model")
        shared = json.dumps(model | {_PERSONAL: None}, sort_keys=True, default=str)
        source = _list_constant_settings(digest, "data").get("source", "")
        tables.setdefault((source, shared, *sorted(digest.labels)), []).append(digest)
    tables = {(*key, *more): runs for key, all_runs in tables.items() for more, runs in _separate(all_runs).items()}
    titles = [describe_data_and_model(runs[0]) for runs in tables.values()]
    groups = []
    for runs, title in zip(tables.values(), titles, strict=True):
        names = ", ".join(runs[0].labels)
        groups.append(_make_group(runs, title if titles.count(title) == 1 or not names else f"{title}, by {names}"))
    return groups


def _separate(runs: list[Digest]) -> dict[tuple[str, ...], list[Digest]]:
    """Separate runs that differ in their personal layers, unless the results of single clients compare them."""
    if len({run.headline_over_clients for run in runs} - {None}) == 1 and all(
        run.headline_over_clients for run in runs
    ):
        return {(): runs}
    by_layers: dict[tuple[str, ...], list[Digest]] = {}
    for run in runs:
        by_layers.setdefault((str(run.experiment["model"].get(_PERSONAL)),), []).append(run)
    return by_layers


def get_algorithm_title(name: str) -> str:
    """Return the name of an algorithm as papers write it."""
    return TITLES.get(name, name)


def _make_group(runs: Sequence[Digest], title: str) -> Group:
    cells: dict[str, ResultCell] = {}
    by_place: dict[tuple[str, str], list[Digest]] = {}  # (algorithm, cell)
    lengths = {run.experiment["rounds"] for run in runs}
    for run in runs:
        labels = run.labels or describe_conditions(run)
        if len(lengths) > 1:
            labels = {**labels, "rounds": f"{run.experiment['rounds']} rounds"}
        cell = ResultCell(_name_cell(labels), labels)
        cells.setdefault(cell.name, cell)
        by_place.setdefault((run.algorithm, cell.name), []).append(run)
    paths: dict[str, dict[str, None]] = {}  # by algorithm, the settings in which its runs differ within a cell
    for (algorithm, _), replicates in by_place.items():
        differing = list_differing_settings(map(list_method_settings, replicates))
        paths.setdefault(algorithm, {}).update(dict.fromkeys(differing))
    if len({str(run.experiment["model"].get(_PERSONAL)) for run in runs}) > 1:
        for own in paths.values():  # every row says which layers are personal
            own[f"model.{_PERSONAL}"] = None
    rows: dict[tuple[str, str], dict[str, list[Digest]]] = {}
    for (algorithm, cell), replicates in by_place.items():
        for run in replicates:
            settings = list_method_settings(run)
            setting_text = ", ".join(format_setting(path, settings.get(path)) for path in paths[algorithm])
            algorithm_title = get_algorithm_title(algorithm)
            label = f"{algorithm_title} ({setting_text})" if setting_text else algorithm_title
            rows.setdefault((algorithm, label), {}).setdefault(cell, []).append(run)
    ordered = sorted(rows, key=lambda row: (_rank_algorithm(row[0]), row[0], _make_sort_key(row[1])))
    metric = choose_metric((run.headline, run.test_losses) for run in runs)
    group = Group(
        title,
        tuple(sorted(cells.values(), key=lambda cell: [_make_sort_key(text) for text in cell.labels.values()])),
        tuple(ResultRow(label, name, _make_entries(rows[name, label], metric)) for name, label in ordered),
        metric,
    )
    return group if len(group.rows) > 1 or len(group.cells) == 1 else _transpose(group)


def _transpose(group: Group) -> Group:
    """Turn the cells of a single row, e.g. FedCM by α, into rows, so that they are compared in one figure."""
    (row,) = group.rows
    conditions = {_name_cell(describe_conditions(run)) for entry in row.entries.values() for run in entry.runs}
    column = conditions.pop() if len(conditions) == 1 else group.metric.title
    rows = [
        ResultRow(f"{row.label} ({cell.name})", row.algorithm, {column: row.entries[cell.name]}) for cell in group.cells
    ]
    return Group(group.title, (ResultCell(column, {}),), tuple(rows), group.metric)


def _name_cell(labels: dict[str, str]) -> str:
    """Return the name of a cell with these labels.

    >>> _name_cell({"setting": "II", "alpha": "0.1", "model.hidden": "[64, 32]"})
    'II · alpha 0.1 · model.hidden = [64, 32]'
    """
    return " · ".join(_format_label(axis, text) for axis, text in labels.items())


def _format_label(axis: str, text: str) -> str:
    if "." in axis:  # a setting that was swept
        return f"{axis} = {text}"
    return f"{axis} {text}" if text.replace(".", "").isdigit() else text


def _make_entries(by_cell: dict[str, list[Digest]], metric: Metric) -> dict[str, Entry]:
    return {cell: Entry(tuple(keep_one_run_per_seed(runs)), metric) for cell, runs in by_cell.items()}


def keep_one_run_per_seed(runs: Iterable[Digest]) -> list[Digest]:
    """Keep one run per seed, because a repeated seed is not a replicate: the finished one, else the later one."""
    best: dict[int, Digest] = {}
    for run in sorted(runs, key=lambda run: run.started):
        other = best.get(run.seed)
        if other is None or _STATES.index(run.state) <= _STATES.index(other.state):
            best[run.seed] = run
    return [best[seed] for seed in sorted(best)]


def describe_data_and_model(run: Digest) -> str:
    """Describe the dataset and model, which a run shares with the other runs of its table."""
    source = _list_constant_settings(run, "data").get("source")
    model = _list_constant_settings(run, "model").get("name")
    name = source if source is None or ":" in source else PurePath(source).stem
    return ", ".join(filter(None, (name, model))) or str(run.experiment.get("name", "runs"))


def _list_constant_settings(run: Digest, section: str) -> dict[str, Any]:
    """Return a section's settings without those that a sweep varies, which are the table's columns."""
    return {key: value for key, value in run.experiment[section].items() if f"{section}.{key}" not in run.labels}


def describe_conditions(run: Digest) -> dict[str, str]:
    """Return the labels of a run that has none of its own: number of clients, participation and split."""
    participation = run.experiment.get("participation", {})
    clients = run.experiment["split"].get("clients")
    labels = {} if clients is None else {"clients": f"{clients} clients"}
    kind = participation.get("kind", "everyone")
    participation_text = {
        "independent": f"p = {participation.get('probability')}",
        "fixed": f"{participation.get('clients')} per round",
    }
    return labels | {"participation": participation_text.get(kind, kind), "split": describe_split(run)}


def describe_split(run: Digest) -> str:
    """Return the kind of a run's split with its parameter."""
    split = run.experiment["split"]
    return " ".join([split["kind"], *(str(split[key]) for key in ("concentration", "per_client") if key in split)])


def _list_targets(run: Digest) -> list[float]:
    evaluation = run.experiment.get("evaluation")
    targets = evaluation.get("targets") if isinstance(evaluation, dict) else None
    return [target for target in targets if isinstance(target, float)] if isinstance(targets, list) else []


def _rank_algorithm(name: str) -> int:
    return list(TITLES).index(name) if name in TITLES else len(TITLES)


def _make_sort_key(text: str) -> list[tuple[int, float, str]]:
    """Return a key that sorts "iid" first and numbers by their size.

    >>> sorted(["dirichlet 0.6", "iid", "10 clients", "9 clients"], key=_make_sort_key)
    ['iid', '9 clients', '10 clients', 'dirichlet 0.6']
    """
    key: list[tuple[int, float, str]] = []
    for word in text.split():
        try:
            key.append((1, float(word.strip("[](),%")), ""))
        except ValueError:
            key.append((0 if word.lower() == "iid" else 2, 0.0, word))
    return key
