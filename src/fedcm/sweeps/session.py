"""A sweep from its runs to their end: `plan_sweep`, then `run_tasks`.

`fedcm.sweep` and the commands `compare`, `sweep` and `reproduce` use both. The commands add a dry run, torchrun, a
progress table and a report.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fedcm.errors import UserError
from fedcm.runs.archive import describe_existing_runs
from fedcm.runs.workers.torchrun import Launch
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.preflight import reject_impossible_runs
from fedcm.sweeps.run_parallel import run_parallel
from fedcm.sweeps.run_sequential import run_sequential
from fedcm.sweeps.tasks import SweepTask, make_tasks, record_cells
from fedcm.system.formatting import format_count
from fedcm.trackers import load_trackers
from fedcm.trackers.observation import ShowProgress
from fedcm.trackers.tracker import track_finished

_REMARKS = 5  # reported at most


class CoreShare(NamedTuple):
    """How a sweep uses the cores of a machine."""

    jobs: int  # runs in parallel
    workers: int  # processes per run


class ShowSweepProgress(Protocol):
    """Shows the progress of a sweep."""

    def __call__(self, ended: Iterator[SweepTask | None], tasks: Sequence[SweepTask], jobs: int) -> Iterator[SweepTask]:
        """Yield the tasks that have ended.

        Args:
            ended: The tasks as they end; None after each poll.
            tasks: All tasks of the sweep.
            jobs: Runs in parallel.
        """
        ...


def find_busiest_device(runs: Sequence[GridRun]) -> str:
    """Return the device that decides how many processes a sweep has: a CUDA device if any run uses one, else "cpu"."""
    devices = sorted(run.experiment.engine.device for run in runs)
    return next((device for device in reversed(devices) if device != "cpu"), "cpu")


def divide_cores(tasks: Sequence[SweepTask], cores: int) -> CoreShare:
    """Share the cores among the remaining runs. If a run uses CUDA devices, it uses all of them."""
    remaining = sum(not task.has_ended for task in tasks)
    on_cpu = all(task.run.experiment.engine.device == "cpu" for task in tasks)
    jobs = max(min(remaining, cores), 1) if on_cpu else 1
    return CoreShare(jobs, max(cores // jobs, 1))


def plan_sweep(
    runs: Sequence[GridRun], runs_dir: Path, *, archive: Path | None, notify: Callable[[str], None]
) -> list[SweepTask]:
    """Return a task for each run, and report which folders the runs reuse or avoid.

    Args:
        runs: The runs of the sweep.
        runs_dir: The folder of runs.
        archive: Folder that existing runs are moved to; if None, they are reused.
        notify: Called with one sentence about each folder that is reused or avoided.
    """
    tasks = make_tasks(runs, runs_dir, archive=archive)
    report_remarks(tasks, notify)
    return tasks


def report_remarks(tasks: Sequence[SweepTask], notify: Callable[[str], None]) -> None:
    """Report which folders the runs reuse or avoid; only a few of many equal remarks."""
    remarks = [task.remark for task in tasks if task.remark]
    for remark in remarks[:_REMARKS]:
        notify(remark)
    if len(remarks) > _REMARKS:
        notify(f"the same holds for {format_count(len(remarks) - _REMARKS, 'more run')}")


def run_tasks(
    tasks: Sequence[SweepTask],
    data_dir: Path | None,
    share: CoreShare,
    *,
    track: Sequence[str] = (),
    launch: Launch | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    notify: Callable[[str], None],
    show_progress: ShowSweepProgress | None = None,
    show_run_progress: ShowProgress | None = None,
) -> None:
    """Run the tasks that have not ended: in parallel, or one after another under torchrun.

    Args:
        tasks: All tasks of the sweep.
        data_dir: Folder of prepared datasets.
        share: How many runs are in parallel, and how many processes each has.
        track: Names of trackers. Finished runs are logged too.
        launch: The processes that torchrun started, which then work on every run together.
        stop_requested: Returns whether the user asked to stop.
        notify: Called with one sentence about each thing that the user should know.
        show_progress: Shows the progress of the sweep; none by default.
        show_run_progress: Shows the progress of each run under torchrun; none by default.

    Raises:
        UserError: If a run cannot work, or has failed.
        Stopped: If the user asked to stop; all finished rounds are saved.
    """
    trackers = load_trackers(track)  # an unknown name is an error now, not in every run
    for task in tasks:
        if task.has_ended:
            track_finished(task.folder, trackers, notify)
    reject_impossible_runs(tasks, data_dir)
    record_cells(tasks)
    _report_start(tasks, notify)
    if launch is not None:
        ended = run_sequential(
            tasks, data_dir, launch, stop_requested, trackers, notify=notify, show_progress=show_run_progress
        )
    else:
        ended = run_parallel(
            tasks,
            data_dir,
            jobs=share.jobs,
            workers=share.workers,
            track=track,
            stop_requested=stop_requested,
            notify=notify,
        )
    for _ in ended if show_progress is None else show_progress(ended, tasks, share.jobs):
        pass
    reject_failed_tasks(tasks)


def reject_failed_tasks(tasks: Sequence[SweepTask]) -> None:
    """Raise a UserError if a run has failed."""
    if failed := [task for task in tasks if task.outcome == "failed"]:
        count = f"{len(failed)} of {format_count(len(tasks), 'run')}"
        raise UserError(f"{count} failed, first {failed[0].run.name}: {failed[0].reason}")


def _report_start(tasks: Sequence[SweepTask], notify: Callable[[str], None]) -> None:
    archive = tasks[0].archive
    if archive is not None:
        runs_dir = tasks[0].folder.path.parent
        if existing := describe_existing_runs(runs_dir, [task.run.name for task in tasks]):
            notify(f"{existing} will be moved to {archive}, each when its new run starts")
    if ended := sum(task.has_ended for task in tasks):
        verb = "is" if ended == 1 else "are"
        notify(f"{ended} of {format_count(len(tasks), 'run')} {verb} finished already")
