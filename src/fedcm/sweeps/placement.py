"""Which folder a run of a series has: the one in which the same experiment is, whatever it is called; or else a new
one, by the run's own name or, where another experiment has that, by the next free number.

So what is there is used again wherever it came from (a comparison, a sweep over another setting, `fedcm run`), and a
run with other settings is never written over.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from fedcm.config.experiment import Experiment, read_experiment, to_table
from fedcm.config.overrides import Table, read_table
from fedcm.errors import UserError
from fedcm.runs.folder import RunFolder, list_runs
from fedcm.sweeps.grid import GridRun


class RunPlace(NamedTuple):
    run: GridRun  # by the name that it has there
    folder: RunFolder
    remark: str = ""  # what the person should know of it


def place_all(runs: Sequence[GridRun], runs_dir: Path) -> list[RunPlace]:
    """A folder for each run, no two the same; first come those that are finished under their own name."""
    there = _There(runs_dir)
    own = [RunFolder(runs_dir / run.name) for run in runs]
    at_home = [
        there.is_same(folder, run) and folder.read_summary() is not None for folder, run in zip(own, runs, strict=True)
    ]
    there.taken |= {folder.name.casefold() for folder, home in zip(own, at_home, strict=True) if home}
    return [
        RunPlace(run, folder) if home else there.place(run)
        for run, folder, home in zip(runs, own, at_home, strict=True)
    ]


def place_again(run: GridRun, runs_dir: Path, others: Sequence[str]) -> RunPlace:
    """Where another process was faster; `others` are the folders that runs of the same series have."""
    there = _There(runs_dir)
    there.taken |= {name.casefold() for name in others}
    return there.place(run)


def describe_other(folder: RunFolder, experiment: Experiment) -> str:
    """In which settings what is in a folder differs from this experiment; empty where it is of this experiment."""
    try:
        paths = _differing(to_table(read_experiment(read_table(folder.experiment))), experiment)
    except UserError:
        return "and cannot be read" if folder.experiment.is_file() else "and is no run"
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"with other settings ({', '.join(paths[:3])}{more})" if paths else ""


class _There:
    """What is in the runs' folder, each file read once."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self.taken: set[str] = set()  # names that runs of the series have, without capitals: some disks know none
        self.by_kind: dict[str, list[RunFolder]] = {}
        for folder in list_runs(runs_dir):
            self.by_kind.setdefault(_kind(_raw(folder)), []).append(folder)
        self._settings: dict[Path, Table | None] = {}

    def place(self, run: GridRun) -> RunPlace:
        """By its own name, or else the newest run of this experiment, rather one that is over. A run by its own name
        that is not over, and may be damaged, gives way to one that is and was begun later."""
        place = self._by_name(run)
        if place.folder.read_summary() is None:
            there = place.folder.experiment.is_file()
            others = [one for one in self._elsewhere(run) if _begun(one) > _begun(place.folder)]
            over = [one for one in others if one.read_summary() is not None]
            if better := over or ([] if there else others):
                folder = max(better, key=_begun)
                remark = f"{run.name} is the same experiment as {folder.path}, which is used for it"
                place = RunPlace(run, folder, remark)
        self.taken.add(place.folder.name.casefold())
        return place

    def is_same(self, folder: RunFolder, run: GridRun) -> bool:
        there = self._read(folder)
        return there is not None and not _differing(there, run.experiment)

    def _by_name(self, run: GridRun) -> RunPlace:
        """The first number that has this experiment, or that is free."""
        remark = ""
        for name in (run.name if k == 1 else f"{run.name}-{k}" for k in count(1)):
            folder = RunFolder(self.runs_dir / name)
            if name.casefold() in self.taken:
                continue
            if self.is_same(folder, run):
                return RunPlace(GridRun(name, run.experiment), folder)
            if not os.path.lexists(folder.path):
                return RunPlace(GridRun(name, run.experiment), folder, remark and f"{remark}; the new run is {name}")
            remark = remark or f"{folder.path} stays as it is, {describe_other(folder, run.experiment)}"
        raise AssertionError("numbers do not end")

    def _elsewhere(self, run: GridRun) -> list[RunFolder]:
        alike = self.by_kind.get(_kind(to_table(run.experiment)), [])
        return [one for one in alike if one.name.casefold() not in self.taken and self.is_same(one, run)]

    def _read(self, folder: RunFolder) -> Table | None:
        if folder.path not in self._settings:
            try:
                there = (
                    to_table(read_experiment(read_table(folder.experiment))) if folder.experiment.is_file() else None
                )
            except UserError:
                there = None
            self._settings[folder.path] = there
        return self._settings[folder.path]


def _differing(there: Table, experiment: Experiment) -> list[str]:
    """The settings that differ. Where one is "auto", the value chosen by the earlier run counts. 1 and 1.0
    are different values."""
    here = to_table(experiment)
    here["engine"] |= {key: there["engine"].get(key) for key, value in here["engine"].items() if value == "auto"}
    one, other = dict(_flat({**here, "cell": {}})), dict(_flat({**there, "cell": {}}))
    return [path for path in {**one, **other} if one.get(path) != other.get(path)]


def _flat(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", repr(value)


def _begun(folder: RunFolder) -> float:
    """When; long ago where there is no run."""
    try:
        return folder.experiment.stat().st_mtime
    except OSError:
        return 0.0


def _raw(folder: RunFolder) -> Table:
    """As it stands in the file: nothing of the user's own is imported for it."""
    try:
        return tomllib.loads(folder.experiment.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _kind(table: Table) -> str:
    """The settings that a reader compares first: the algorithm, the seed, …"""
    algorithm = table.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    return repr([table.get("name"), table.get("rounds"), table.get("seed"), name])
