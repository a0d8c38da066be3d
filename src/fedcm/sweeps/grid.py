"""Many runs from one file: every combination of algorithms, variants and seeds, with exceptions where a cell needs one.

    [grid]
    algorithms = ["fedavg", "fedcm"]      # the experiment's own unless given
    seeds = 3                             # the experiment's own, and the next ones
    [grid.axes.setting.I]                 # axis, variant: settings put over the experiment's
    participation.probability = 0.1
    [grid.axes.setting.II]
    participation.probability = 0.02
    [[grid.exceptions]]                   # the cells where all of these hold; the later exception wins
    where = { algorithm = "fedcm", setting = "II" }
    set.algorithm.alpha = 0.05            # also: seeds = 1, or skip = true
    [grid.published]                      # accuracy in percent, by the variants in the axes' order
    "I" = { fedavg = 82.1, fedcm = 87.6 }

Settings hold in this order, the later the stronger: the experiment, `[for.NAME]`, variants, swept settings, exceptions,
`--set`.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pydantic import Field

from fedcm.algorithms.registry import algorithm_name
from fedcm.config.experiment import Experiment, read_experiment
from fedcm.config.overrides import Table, apply_overrides, merge_table, read_table, select_algorithm
from fedcm.config.schema import Section, read_section
from fedcm.errors import UserError, suggest
from fedcm.sweeps.axes import SweptSetting, read_swept, reject_equal_runs
from fedcm.sweeps.run_names import run_name, variant_part

Names = str | list[str]
_WHY_TWICE = "two variants or algorithms are called so, or --set makes them the same"


class GridException(Section):
    where: dict[str, Names]
    set: Table = Field(default={})
    seeds: int | None = Field(default=None, ge=1)  # at most so many here
    skip: bool = False


class ExperimentGrid(Section):
    algorithms: list[str] = Field(default=[])
    seeds: int = Field(default=1, ge=1, le=1000)
    axes: dict[str, dict[str, Table]] = Field(default={})
    exceptions: list[GridException] = Field(default=[])
    published: dict[str, dict[str, float]] = Field(default={})


@final
@dataclass(frozen=True)
class GridRun:
    name: str  # of its folder
    experiment: Experiment


def expand_grid(
    path: Path,
    settings: Sequence[str] = (),
    *,
    algorithms: Sequence[str] = (),
    seeds: int | None = None,
    over: Sequence[str] = (),
) -> list[GridRun]:
    """All runs that a file asks for, one seed of everything before the next. What is given here wins over the file:
    algorithms and how many seeds. `over` are settings to be swept as well, as `path=value,value`."""
    table = read_table(path)
    grid = read_section(ExperimentGrid, table.pop("grid", {}), "grid")
    if algorithms:
        grid = grid.model_copy(update={"algorithms": list(algorithms)})
    if seeds is not None:
        grid = grid.model_copy(update={"seeds": seeds, "exceptions": [_all_seeds(e) for e in grid.exceptions]})
    _reject_unknown_names(table, grid)
    swept = read_swept(over)
    if swept:  # what a paper published is of its own settings
        axes = {axis: grid.axes[axis] for axis in grid.axes if axis not in {setting.path for setting in swept}}
        grid = grid.model_copy(update={"axes": axes, "published": {}})
    runs = list(_combined(table, grid, settings, swept))
    if not runs:
        raise UserError(f"the grid of {str(path)!r} must have a run, and its exceptions skip them all")
    names = [run.name for run in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        why = "two values mean the same, or --set or an exception fixes the setting" if swept else _WHY_TWICE
        raise UserError(f"the runs of a grid must differ in name, and {twice!r} comes twice: {why}")
    if swept:
        reject_equal_runs({run.name: run.experiment for run in runs})
    return runs


def select_by_name(runs: Sequence[GridRun], part: str) -> list[GridRun]:
    """Those with this in their name."""
    chosen = [run for run in runs if part.lower() in run.name.lower()]
    if not chosen:
        raise UserError(
            f"--only must be part of a run's name, and no run has {part!r}; {suggest(part, [r.name for r in runs])}"
        )
    return chosen


def _combined(
    table: Table, grid: ExperimentGrid, settings: Sequence[str], swept: Sequence[SweptSetting]
) -> Iterator[GridRun]:
    algorithms: list[str | None] = [*grid.algorithms] or [None]
    for replicate in range(grid.seeds):
        for variants in itertools.product(*[grid.axes[axis] for axis in grid.axes]):
            labels = dict(zip(grid.axes, variants, strict=True))
            for values in itertools.product(*[setting.values for setting in swept]):
                changes = list(zip(swept, values, strict=True))
                for algorithm in algorithms:
                    run = _run(table, grid, settings, labels, changes, algorithm, replicate)
                    if run is not None:
                        yield run


def _run(
    table: Table,
    grid: ExperimentGrid,
    settings: Sequence[str],
    labels: dict[str, str],
    changes: Sequence[tuple[SweptSetting, Any]],
    algorithm: str | None,
    replicate: int,
) -> GridRun | None:
    own = select_algorithm(table, algorithm)
    name = _name_of_algorithm(own)
    for axis, variant in labels.items():
        merge_table(own, grid.axes[axis][variant])
    for setting, value in changes:
        merge_table(own, setting.as_table(value))
    for exception in grid.exceptions:
        if _holds(exception.where, labels | {"algorithm": name}):
            if exception.skip or (exception.seeds is not None and replicate >= exception.seeds):
                return None
            merge_table(own, exception.set)
    own = apply_overrides(own, settings)
    own["seed"] = _next_seed(own.get("seed", 0), replicate)
    published = grid.published.get(" ".join(labels.values()), {}).get(name)
    own["cell"] = {"labels": labels} | ({} if published is None else {"published": published})
    experiment = read_experiment(own)
    found = [setting.found_in(experiment, value) for setting, value in changes]
    cell = experiment.cell.model_copy(update={"labels": labels | {one.path: one.text for one in found}})
    experiment = experiment.model_copy(update={"cell": cell})
    parts = [*map(variant_part, labels.values()), *(one.part for one in found if one.part)]
    return GridRun(run_name(experiment.name, parts, algorithm_name(experiment.algorithm), experiment.seed), experiment)


def _holds(where: Mapping[str, Names], labels: Mapping[str, str]) -> bool:
    return all(labels.get(axis) in ([names] if isinstance(names, str) else names) for axis, names in where.items())


def _name_of_algorithm(table: Table) -> str:
    own = table.get("algorithm")
    name = own.get("name") if isinstance(own, dict) else None
    return name if isinstance(name, str) else ""


def _next_seed(first: Any, replicate: int) -> Any:
    """What is no whole number is left to the experiment's schema, which refuses it."""
    return first + replicate if isinstance(first, int) and not isinstance(first, bool) else first


def _all_seeds(exception: GridException) -> GridException:
    return exception.model_copy(update={"seeds": None})


def _reject_unknown_names(table: Table, grid: ExperimentGrid) -> None:
    known = {axis: list(variants) for axis, variants in grid.axes.items()}
    known["algorithm"] = grid.algorithms or [_name_of_algorithm(table)]
    for axis, variants in grid.axes.items():
        if not variants:
            raise UserError(f"grid.axes.{axis} must have a variant, and has none")
    for exception in grid.exceptions:
        for axis, names in exception.where.items():
            if axis not in known:
                raise UserError(f"grid.exceptions: there is no axis {axis!r}; {suggest(axis, known)}")
            _reject_strangers([names] if isinstance(names, str) else names, known[axis], f"grid.exceptions, {axis}")
    columns = [" ".join(variants) for variants in itertools.product(*grid.axes.values())]
    _reject_strangers(grid.published, columns, "grid.published")


def _reject_strangers(names: Iterable[str], known: Sequence[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: there is no {name!r}; {suggest(name, known)}")
