"""Many runs, one after another or some at a time: what is missing is run, what was stopped goes on, what is done stays.

Each run is a process of its own, `fedcm run` or `fedcm resume`: one that fails does not end the others, and how far
each has come stands in its folder. Runs side by side with few workers each waste less of a machine than one run on all
cores, whose workers wait for each other at the end of every round; the bits are the same either way.

A run's process ends with the series, even where that is killed: it saves its rounds first, and its folder stays locked
until then. So a folder that another process has locked is waited for, and then looked at anew.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from fedcm.algorithms.registry import algorithm_name
from fedcm.config.experiment import Experiment, read_experiment, to_toml
from fedcm.config.overrides import read_table
from fedcm.errors import Stopped
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.cells import record_cell
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.labels import write_label
from fedcm.sweeps.placement import describe_other, place_again, place_all
from fedcm.system.faults import is_debugging
from fedcm.system.processes import child_environment

_LOOK = 0.2  # seconds between looks at what the processes have done
_REFUSED = 2  # the exit code


@final
@dataclass
class SweepTask:
    """One run of the series, and how far it is."""

    run: GridRun
    folder: RunFolder
    archive: Path | None = None  # where the run goes that is there already; without it that one is used again
    remark: str = ""  # on its folder
    done: int = 0  # rounds
    state: str = "missing"  # stopped, locked, running, finished, diverged, failed
    why: str = ""  # it failed
    _read: int = field(default=0, repr=False)
    _before: int | None = field(default=None, repr=False)  # the folder that goes to the archive, by its inode

    @property
    def rounds(self) -> int:
        return self.run.experiment.rounds

    @property
    def over(self) -> bool:
        return self.state in ("finished", "diverged", "failed")

    def remember_before(self) -> None:
        """A run that is about to go to the archive says nothing of the one that takes its place."""
        self._before = _inode(self.folder.path) if self.archive is not None else None

    @property
    def is_begun(self) -> bool:
        return self._before is None or _inode(self.folder.path) != self._before

    def look(self) -> None:
        """Count the rounds on the disk; only what is new is read."""
        if not self.is_begun:
            return
        try:
            with self.folder.metrics.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._read:  # cut back by a resume
                    self._read, self.done = 0, 0
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return
        self._read += len(new)
        self.done += new.count(b"\n")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def make_tasks(runs: Sequence[GridRun], runs_dir: Path, *, archive: Path | None = None) -> list[SweepTask]:
    """What there is to do. With an archive all begin anew, by their own names."""
    if archive is not None:
        return [SweepTask(run, RunFolder(runs_dir / run.name), archive) for run in runs]
    tasks = [SweepTask(place.run, place.folder, remark=place.remark) for place in place_all(runs, runs_dir)]
    for task in tasks:
        _read_folder(task)
    return tasks


def _read_folder(task: SweepTask) -> None:
    """How far the task is by its folder alone."""
    summary = task.folder.read_summary()
    if summary is not None:
        task.state, task.done, task.why = summary["outcome"], task.rounds, summary.get("reason", "")
    elif task.folder.experiment.is_file():
        task.state = "stopped"
        task.look()
    else:
        task.state = "missing"


def record_cells(tasks: Sequence[SweepTask]) -> None:
    """A run that was made for another cell belongs to this one too."""
    for task in tasks:
        if task.state != "missing" and task.archive is None:
            there = read_experiment(read_table(task.folder.experiment))
            record_cell(task.folder.path, read_cell(there), read_cell(task.run.experiment))


def read_cell(experiment: Experiment) -> dict[str, Any]:
    return experiment.cell.model_dump(exclude_none=True)


def run_parallel(
    tasks: Sequence[SweepTask],
    data_dir: Path | None,
    *,
    jobs: int,
    workers: int,
    track: Sequence[str] = (),
    stop_requested: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Iterator[SweepTask | None]:
    """Run what is left, `jobs` at a time with so many workers each; gives each task that is over, and None between."""
    waiting, active = [task for task in tasks if not task.over], {}

    def is_free(task: SweepTask) -> bool:
        return _is_free(task, [other.folder.name for other in tasks if other is not task], tell)

    with tempfile.TemporaryDirectory(prefix="fedcm-") as scratch:
        try:
            while waiting or active:
                if stop_requested():
                    raise Stopped
                for task in list(waiting):
                    if len(active) == jobs:
                        break
                    if is_free(task):
                        waiting.remove(task)
                        if task.over:
                            yield task  # whoever had it locked brought it to its end
                        else:
                            active[id(task)] = task, _start(task, data_dir, workers, track, Path(scratch))
                for task, child in list(active.values()):
                    task.look()
                    if child.process.poll() is not None:
                        del active[id(task)]
                        if child.process.returncode == _REFUSED and _was_taken(task, is_free):
                            waiting.append(task)
                            continue
                        _ended(task, child, tell)
                        yield task
                yield None
                time.sleep(_LOOK)
        finally:
            _stop([child for _, child in active.values()])


def _is_free(task: SweepTask, others: Sequence[str], tell: Callable[[str], None]) -> bool:
    """May the task be begun? What another process has locked is told once; what it left by now is looked at."""
    if task.archive is None and task.folder.experiment.is_file() and describe_other(task.folder, task.run.experiment):
        place = place_again(task.run, task.folder.path.parent, others)
        task.run, task.folder = place.run, place.folder
        if place.remark:
            tell(place.remark)
    if task.folder.is_locked():
        if task.state != "locked":
            tell(f"{task.run.name} is in progress in another process; waiting for that to end")
        task.state = "locked"
        return False
    if task.archive is not None:
        task.state = "missing"
    else:
        _read_folder(task)
    return True


def _was_taken(task: SweepTask, is_free: Callable[[SweepTask], bool]) -> bool:
    """Was another process first with a run by this name, of whatever experiment?"""
    before = task.folder.path
    return not is_free(task) or task.folder.path != before


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    said: Path  # its stderr


def _start(task: SweepTask, data_dir: Path | None, workers: int, track: Sequence[str], scratch: Path) -> _Child:
    words = [sys.executable, "-m", "fedcm"]
    if task.state == "stopped":
        words += ["resume", str(task.folder.path)]
    else:
        described = scratch / f"{task.run.name}.toml"
        described.write_text(to_toml(task.run.experiment), encoding="utf-8")
        words += ["run", str(described), "--name", task.run.name, "--runs-dir", str(task.folder.path.parent)]
        words += ["--fresh", "--archive", str(task.archive)] if task.archive is not None else []
    words += [word for name in track for word in ("--track", name)]
    words += ["--workers", str(workers)] + ([] if data_dir is None else ["--data-dir", str(data_dir)])
    task.remember_before()
    said = scratch / f"{task.run.name}.txt"
    with said.open("wb") as file:
        process = subprocess.Popen(
            words,
            env=os.environ | child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    task.state = "running"
    return _Child(process, said)


def _ended(task: SweepTask, child: _Child, tell: Callable[[str], None]) -> None:
    summary = task.folder.read_summary() if task.is_begun else None
    if summary is not None and child.process.returncode in (0, 1):
        task.state, task.done = summary["outcome"], task.rounds
        task.why = summary.get("reason", "")
        return
    lines = child.said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    task.state = "failed"
    if is_debugging():  # its traceback, among what it said
        tell(f"{task.run.name} said:\n" + "\n".join(lines))
    task.why = (lines[-1] if lines else f"it left with code {child.process.returncode}").removeprefix("fedcm: ")


def _stop(children: Sequence[_Child]) -> None:
    """As Ctrl-C would: each saves its rounds; who does not within a minute is killed, and loses none that was saved."""
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGINT)
    for child in children:
        try:
            child.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def shorten_names(tasks: Sequence[SweepTask]) -> dict[str, str]:
    """What to call the runs beside each other: the algorithm, with whatever else differs."""
    several = len({task.run.experiment.seed for task in tasks}) > 1
    names = {}
    for task in tasks:
        experiment = task.run.experiment
        words = [write_label(axis, text) for axis, text in experiment.cell.labels.items() if axis != "seed"]
        words.append(algorithm_name(experiment.algorithm))
        names[task.run.name] = " ".join([*words, f"seed {experiment.seed}"] if several else words)
    return names if len(set(names.values())) == len(names) else {task.run.name: task.run.name for task in tasks}
