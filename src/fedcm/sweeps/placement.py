"""Choose a folder for each run of a sweep.

It is the folder of an existing run of the same experiment, whatever its name. If there is none, it is a new folder
with the run's name, and a number if another experiment has that name. So existing runs are reused, wherever they come
from (a comparison, another sweep, `fedcm run`), and a run with other settings is never overwritten.
"""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedcm.config.experiment import read_experiment, to_table
from fedcm.config.overrides import Table, read_table
from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.runs.folder import RunFolder, list_runs
from fedcm.sweeps.grid import GridRun
from fedcm.system.formatting import flatten_table, number_names


class RunPlace(NamedTuple):
    """The folder of a run."""

    run: GridRun  # with the name of the folder
    folder: RunFolder
    remark: str = ""  # what the user should know about it


def place_runs(runs: Sequence[GridRun], runs_dir: Path) -> list[RunPlace]:
    """Return a different folder for each run. Finished runs with their own name come first."""
    existing = _ExistingRuns(runs_dir)
    own = [RunFolder(runs_dir / run.name) for run in runs]
    at_home = [
        existing.is_same(folder, run) and folder.read_summary() is not None
        for folder, run in zip(own, runs, strict=True)
    ]
    existing.taken |= {folder.name.casefold() for folder, home in zip(own, at_home, strict=True) if home}
    return [
        RunPlace(run, folder) if home else existing.place(run)
        for run, folder, home in zip(runs, own, at_home, strict=True)
    ]


def place_again(run: GridRun, runs_dir: Path, others: Sequence[str]) -> RunPlace:
    """Return another folder for a run whose name another process has taken.

    Args:
        run: The run.
        runs_dir: The folder of runs.
        others: The folders of the other runs of the sweep.
    """
    existing = _ExistingRuns(runs_dir)
    existing.taken |= {name.casefold() for name in others}
    return existing.place(run)


def describe_difference(folder: RunFolder, experiment: Experiment) -> str:
    """Say in which settings the run in a folder differs from an experiment; empty if it does not."""
    try:
        paths = _list_differences(to_table(read_experiment(read_table(folder.experiment))), experiment)
    except UserError:
        return "and cannot be read" if folder.experiment.is_file() else "and is not a run"
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"with other settings ({', '.join(paths[:3])}{more})" if paths else ""


class _ExistingRuns:
    """The runs in a folder; each file is read once."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self.taken: set[str] = set()  # names in lower case, because some file systems ignore case
        self.by_kind: dict[str, list[RunFolder]] = {}
        for folder in list_runs(runs_dir):
            self.by_kind.setdefault(_make_key(_read_raw(folder)), []).append(folder)
        self._settings: dict[Path, Table | None] = {}

    def place(self, run: GridRun) -> RunPlace:
        """Choose the folder with the run's name, or the newest run of this experiment, preferably one that has ended.

        A run with the right name that has not ended may be damaged; a newer run that has ended is preferred to it.
        """
        place = self._place_by_name(run)
        if place.folder.read_summary() is None:
            exists = place.folder.experiment.is_file()
            others = [one for one in self._find_same(run) if _read_date(one) > _read_date(place.folder)]
            ended = [one for one in others if one.read_summary() is not None]
            if better := ended or ([] if exists else others):
                folder = max(better, key=_read_date)
                remark = f"{run.name} is the same experiment as {folder.path}, which is reused"
                place = RunPlace(run, folder, remark)
        self.taken.add(place.folder.name.casefold())
        return place

    def is_same(self, folder: RunFolder, run: GridRun) -> bool:
        settings = self._read(folder)
        return settings is not None and not _list_differences(settings, run.experiment)

    def _place_by_name(self, run: GridRun) -> RunPlace:
        """Choose the first number with this experiment, or without a run."""
        remark = ""
        for name in number_names(run.name):
            folder = RunFolder(self.runs_dir / name)
            if name.casefold() in self.taken:
                continue
            if self.is_same(folder, run):
                return RunPlace(GridRun(name, run.experiment), folder)
            if not os.path.lexists(folder.path):
                return RunPlace(GridRun(name, run.experiment), folder, remark and f"{remark}; the new run is {name}")
            remark = remark or f"{folder.path} is kept, {describe_difference(folder, run.experiment)}"
        raise AssertionError("numbers do not end")

    def _find_same(self, run: GridRun) -> list[RunFolder]:
        alike = self.by_kind.get(_make_key(to_table(run.experiment)), [])
        return [one for one in alike if one.name.casefold() not in self.taken and self.is_same(one, run)]

    def _read(self, folder: RunFolder) -> Table | None:
        if folder.path not in self._settings:
            try:
                exists = folder.experiment.is_file()
                settings = to_table(read_experiment(read_table(folder.experiment))) if exists else None
            except UserError:
                settings = None
            self._settings[folder.path] = settings
        return self._settings[folder.path]


def _list_differences(existing: Table, experiment: Experiment) -> list[str]:
    """List the settings that differ. "auto" equals the value that the existing run chose. 1 and 1.0 differ."""
    wanted, chosen = to_table(experiment), existing["engine"]
    wanted["engine"] |= {key: chosen.get(key) for key, value in wanted["engine"].items() if value == "auto"}
    one, other = (_write_texts({**table, "cell": {}}) for table in (wanted, existing))
    return [path for path in {**one, **other} if one.get(path) != other.get(path)]


def _write_texts(table: Table) -> dict[str, str]:
    return {path: repr(value) for path, value in flatten_table(table).items()}


def _read_date(folder: RunFolder) -> float:
    """When the run started; 0 if there is no run."""
    try:
        return folder.experiment.stat().st_mtime
    except OSError:
        return 0.0


def _read_raw(folder: RunFolder) -> Table:
    """Read the file without importing the user's own code."""
    try:
        return tomllib.loads(folder.experiment.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _make_key(table: Table) -> str:
    """The settings that usually differ, to compare few tables in full."""
    algorithm = table.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    return repr([table.get("name"), table.get("rounds"), table.get("seed"), name])
