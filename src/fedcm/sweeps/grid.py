"""Expand one file into many runs: every combination of algorithms, variants and seeds, with exceptions.

    [grid]
    algorithms = ["fedavg", "fedcm"]      # by default the experiment's own
    seeds = 3                             # the experiment's own and the next two
    [grid.axes.setting.I]                 # axis, variant: settings that override the experiment's
    participation.probability = 0.1
    [grid.axes.setting.II]
    participation.probability = 0.02
    [[grid.exceptions]]                   # for cells where all of these hold; a later exception wins
    where = { algorithm = "fedcm", setting = "II" }
    set.algorithm.alpha = 0.05            # also: seeds = 1, or skip = true
    [grid.published]                      # accuracy in percent, by the variants in the axes' order
    "I" = { fedavg = 82.1, fedcm = 87.6 }

Later settings override earlier ones: the experiment, `[for.NAME]`, variants, swept settings, exceptions, overrides.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pydantic import Field

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.experiment import read_experiment, reject_empty_stop
from fedcm.config.overrides import Table, apply_overrides, merge_table, read_table, select_algorithm
from fedcm.config.schema import Section, read_section
from fedcm.config.sections import Experiment
from fedcm.errors import UserError, suggest
from fedcm.sweeps.axes import SweptSetting, parse_swept_settings, reject_equal_runs
from fedcm.sweeps.run_names import make_run_name, make_variant_part

Names = str | list[str]
_EQUAL_VALUES = "two values are equal, or an override or an exception fixes the setting"
_EQUAL_VARIANTS = "two variants or algorithms have the same name, or an override makes them equal"


class GridException(Section):
    """Other settings for some cells of a grid."""

    where: dict[str, Names]
    set: Table = Field(default={})
    seeds: int | None = Field(default=None, ge=1)  # at most this many in these cells
    skip: bool = False


class ExperimentGrid(Section):
    """The `[grid]` table of an experiment file."""

    algorithms: list[str] = Field(default=[])
    seeds: int = Field(default=1, ge=1, le=1000)
    axes: dict[str, dict[str, Table]] = Field(default={})
    exceptions: list[GridException] = Field(default=[])
    published: dict[str, dict[str, float]] = Field(default={})


@final
@dataclass(frozen=True)
class GridRun:
    """One run of a grid: the name of its folder, and its experiment."""

    name: str
    experiment: Experiment


def expand_grid(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    algorithms: Sequence[str] = (),
    seeds: int | None = None,
    over: Sequence[str] = (),
) -> list[GridRun]:
    """Return all runs that a file describes, ordered by seed.

    Args:
        path: The experiment file, with or without a `[grid]`.
        overrides: Settings to change, as `path=value`.
        algorithms: Algorithms, instead of the file's.
        seeds: The number of seeds, instead of the file's.
        over: Settings to sweep, as `path=value,value`.

    Raises:
        UserError: If the grid is wrong, or two of its runs are equal.
    """
    return expand_table(read_table(path), overrides, algorithms=algorithms, seeds=seeds, over=over, source=str(path))


def expand_table(
    table: Table,
    overrides: Sequence[str] = (),
    *,
    algorithms: Sequence[str] = (),
    seeds: int | None = None,
    over: Sequence[str] = (),
    source: str = "the experiment",
) -> list[GridRun]:
    """Return all runs that an experiment's table describes; see `expand_grid`."""
    table = dict(table)
    grid = read_section(ExperimentGrid, table.pop("grid", {}), "grid")
    if algorithms:
        grid = grid.model_copy(update={"algorithms": list(algorithms)})
    if seeds is not None:
        grid = grid.model_copy(update={"seeds": seeds, "exceptions": [_without_seeds(e) for e in grid.exceptions]})
    _reject_unknown_names(table, grid)
    swept = parse_swept_settings(over)
    if swept:  # published figures belong to the paper's settings
        axes = {axis: grid.axes[axis] for axis in grid.axes if axis not in {setting.path for setting in swept}}
        grid = grid.model_copy(update={"axes": axes, "published": {}})
    runs = list(_combine(table, grid, overrides, swept))
    if not runs:
        raise UserError(f"the grid of {source!r} must have a run, but its exceptions skip them all")
    names = [run.name for run in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        reason = _EQUAL_VALUES if swept else _EQUAL_VARIANTS
        raise UserError(f"the runs of a grid must differ in name, but {twice!r} occurs twice: {reason}")
    if swept:
        reject_equal_runs({run.name: run.experiment for run in runs})
    return runs


def select_by_name(runs: Sequence[GridRun], part: str) -> list[GridRun]:
    """Return the runs whose name contains `part`.

    Raises:
        UserError: If there is none.
    """
    chosen = [run for run in runs if part.lower() in run.name.lower()]
    if not chosen:
        raise UserError(f"no run has {part!r} in its name; {suggest(part, [r.name for r in runs])}")
    return chosen


def _combine(
    table: Table, grid: ExperimentGrid, overrides: Sequence[str], swept: Sequence[SweptSetting]
) -> Iterator[GridRun]:
    algorithms: list[str | None] = [*grid.algorithms] or [None]
    for replicate in range(grid.seeds):
        for variants in itertools.product(*[grid.axes[axis] for axis in grid.axes]):
            labels = dict(zip(grid.axes, variants, strict=True))
            for values in itertools.product(*[setting.values for setting in swept]):
                changes = list(zip(swept, values, strict=True))
                for algorithm in algorithms:
                    run = _make_run(table, grid, overrides, labels, changes, algorithm, replicate)
                    if run is not None:
                        yield run


def _make_run(
    table: Table,
    grid: ExperimentGrid,
    overrides: Sequence[str],
    labels: dict[str, str],
    changes: Sequence[tuple[SweptSetting, Any]],
    algorithm: str | None,
    replicate: int,
) -> GridRun | None:
    own = select_algorithm(table, algorithm)
    name = _read_algorithm_name(own)
    for axis, variant in labels.items():
        merge_table(own, grid.axes[axis][variant])
    for setting, value in changes:
        merge_table(own, setting.as_table(value))
    for exception in grid.exceptions:
        if _matches(exception.where, labels | {"algorithm": name}):
            if exception.skip or (exception.seeds is not None and replicate >= exception.seeds):
                return None
            merge_table(own, exception.set)
    own = apply_overrides(own, overrides)
    own["seed"] = _advance_seed(own.get("seed", 0), replicate)
    published = grid.published.get(" ".join(labels.values()), {}).get(name)
    own["cell"] = {"labels": labels} | ({} if published is None else {"published": published})
    reject_empty_stop(own)
    experiment = read_experiment(own)
    swept = [setting.read_from(experiment, value) for setting, value in changes]
    cell = experiment.cell.model_copy(update={"labels": labels | {one.path: one.text for one in swept}})
    experiment = experiment.model_copy(update={"cell": cell})
    parts = [*map(make_variant_part, labels.values()), *(one.name_part for one in swept if one.name_part)]
    return GridRun(
        make_run_name(experiment.name, parts, get_algorithm_name(experiment.algorithm), experiment.seed), experiment
    )


def _matches(where: Mapping[str, Names], labels: Mapping[str, str]) -> bool:
    return all(labels.get(axis) in ([names] if isinstance(names, str) else names) for axis, names in where.items())


def _read_algorithm_name(table: Table) -> str:
    own = table.get("algorithm")
    name = own.get("name") if isinstance(own, dict) else None
    return name if isinstance(name, str) else ""


def _advance_seed(first: Any, replicate: int) -> Any:
    """Leave a seed that is not a whole number to the schema, which rejects it."""
    return first + replicate if isinstance(first, int) and not isinstance(first, bool) else first


def _without_seeds(exception: GridException) -> GridException:
    return exception.model_copy(update={"seeds": None})


def _reject_unknown_names(table: Table, grid: ExperimentGrid) -> None:
    known = {axis: list(variants) for axis, variants in grid.axes.items()}
    known["algorithm"] = grid.algorithms or [_read_algorithm_name(table)]
    for axis, variants in grid.axes.items():
        if not variants:
            raise UserError(f"grid.axes.{axis} must have a variant, but has none")
    for exception in grid.exceptions:
        for axis, names in exception.where.items():
            if axis not in known:
                raise UserError(f"grid.exceptions: there is no axis {axis!r}; {suggest(axis, known)}")
            _reject_unknown([names] if isinstance(names, str) else names, known[axis], f"grid.exceptions, {axis}")
    columns = [" ".join(variants) for variants in itertools.product(*grid.axes.values())]
    _reject_unknown(grid.published, columns, "grid.published")


def _reject_unknown(names: Iterable[str], known: Sequence[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: there is no {name!r}; {suggest(name, known)}")
