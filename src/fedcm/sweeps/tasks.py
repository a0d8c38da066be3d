"""The tasks of a sweep: one per run, with its folder and its progress."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.config.sections import Experiment
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.cells import add_cell
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.labels import write_label
from fedcm.sweeps.placement import place_runs


@final
@dataclass
class SweepTask:
    """One run of a sweep and its progress.

    Attributes:
        run: The run's name and experiment.
        folder: The run's folder, which may not exist yet.
        archive: Folder that an existing run is moved to; without it, that run is reused.
        remark: What the user should know about the folder.
        rounds_done: The number of finished rounds.
        outcome: "finished", "diverged", "stopped" or "failed"; "missing", "locked" or "running" before the end.
        reason: Why the task failed or diverged.
    """

    run: GridRun
    folder: RunFolder
    archive: Path | None = None
    remark: str = ""
    rounds_done: int = 0
    outcome: str = "missing"
    reason: str = ""
    _bytes_read: int = field(default=0, repr=False)
    _replaced: int | None = field(default=None, repr=False)  # the inode of the folder that goes to the archive

    @property
    def rounds(self) -> int:
        """The number of rounds of the whole run."""
        return self.run.experiment.rounds

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to run."""
        return self.outcome in ("finished", "diverged", "failed")

    def remember_replaced_folder(self) -> None:
        """Before the run starts: remember the folder that it replaces, so that its progress is not counted."""
        self._replaced = _read_inode(self.folder.path) if self.archive is not None else None

    @property
    def has_started(self) -> bool:
        """Whether the folder is that of the new run."""
        return self._replaced is None or _read_inode(self.folder.path) != self._replaced

    def update_progress(self) -> None:
        """Count the finished rounds in the folder; only new lines are read."""
        if not self.has_started:
            return
        try:
            with self.folder.metrics.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._bytes_read:  # a resume truncated the file
                    self._bytes_read, self.rounds_done = 0, 0
                file.seek(self._bytes_read)
                new = file.read()
        except FileNotFoundError:
            return
        self._bytes_read += len(new)
        self.rounds_done += new.count(b"\n")

    def read_folder(self) -> None:
        """Set the outcome from the folder alone."""
        summary = self.folder.read_summary()
        if summary is not None:
            self.outcome, self.rounds_done, self.reason = summary["outcome"], self.rounds, summary.get("reason", "")
        elif self.folder.experiment.is_file():
            self.outcome = "stopped"
            self.update_progress()
        else:
            self.outcome = "missing"


def make_tasks(runs: Sequence[GridRun], runs_dir: Path, *, archive: Path | None = None) -> list[SweepTask]:
    """Return a task for each run. With an archive, all runs start again under their own names."""
    if archive is not None:
        return [SweepTask(run, RunFolder(runs_dir / run.name), archive) for run in runs]
    tasks = [SweepTask(place.run, place.folder, remark=place.remark) for place in place_runs(runs, runs_dir)]
    for task in tasks:
        task.read_folder()
    return tasks


def record_cells(tasks: Sequence[SweepTask]) -> None:
    """Record in existing runs that they belong to the cells of this sweep too."""
    for task in tasks:
        if task.outcome != "missing" and task.archive is None:
            existing = read_experiment(read_table(task.folder.experiment))
            add_cell(task.folder.path, to_cell(existing), to_cell(task.run.experiment))


def to_cell(experiment: Experiment) -> dict[str, Any]:
    """Return the `[cell]` table of an experiment."""
    return experiment.cell.model_dump(exclude_none=True)


def shorten_names(tasks: Sequence[SweepTask]) -> dict[str, str]:
    """Return short names for the runs beside each other: the algorithm, and everything else that differs."""
    several = len({task.run.experiment.seed for task in tasks}) > 1
    names = {}
    for task in tasks:
        experiment = task.run.experiment
        parts = [write_label(axis, text) for axis, text in experiment.cell.labels.items() if axis != "seed"]
        parts.append(get_algorithm_name(experiment.algorithm))
        names[task.run.name] = " ".join([*parts, f"seed {experiment.seed}"] if several else parts)
    return names if len(set(names.values())) == len(names) else {task.run.name: task.run.name for task in tasks}


def _read_inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
