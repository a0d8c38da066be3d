"""Run the tasks of a sweep in parallel: missing runs start, stopped ones are resumed, finished ones are reused.

Each run is a process of its own, `fedcm run` or `fedcm resume`: if one fails, the others continue, and each run's
folder has its progress. Several runs with few workers each use a machine better than one run on all cores, whose
workers wait for each other at the end of every round. The bits are the same.

The processes end with the sweep, even if it is killed: they save their rounds first, and their folders stay locked
until then. So the sweep waits for a folder that another process has locked, then reads it again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedcm.errors import Stopped
from fedcm.sweeps.placement import describe_difference, place_again
from fedcm.sweeps.run_process import RunLauncher, read_result, stop_processes
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.callbacks import Notify, StopRequested

_POLL = 0.05  # seconds
_USER_ERROR = 2  # the exit code


def run_parallel(
    tasks: Sequence[SweepTask],
    data_dir: Path | None,
    *,
    jobs: int,
    workers: int,
    track: Sequence[str] = (),
    stop_requested: StopRequested = lambda: False,
    notify: Notify = lambda sentence: None,
) -> Iterator[SweepTask | None]:
    """Run the remaining tasks.

    Args:
        tasks: All tasks of the sweep.
        data_dir: Folder of prepared datasets.
        jobs: Runs in parallel.
        workers: Processes per run.
        track: Names of trackers.
        stop_requested: Returns whether the user asked to stop.
        notify: Called with one sentence about each thing that the user should know.

    Yields:
        Each task that has ended; None after each poll, so that the caller can show progress.

    Raises:
        Stopped: If the user asked to stop; all processes have saved their rounds.
    """
    waiting, active = [task for task in tasks if not task.has_ended], {}

    def is_free(task: SweepTask) -> bool:
        return _is_free(task, [other.folder.name for other in tasks if other is not task], notify)

    with RunLauncher() as launcher:
        try:
            while waiting or active:
                if stop_requested():
                    raise Stopped
                for task in list(waiting):
                    if len(active) == jobs:
                        break
                    if is_free(task):
                        waiting.remove(task)
                        if task.has_ended:
                            yield task  # the process that had locked it finished it
                        else:
                            active[id(task)] = task, launcher.start(task, data_dir, workers, track)
                for task, child in list(active.values()):
                    task.update_progress()
                    if child.process.poll() is not None:
                        del active[id(task)]
                        if child.process.returncode == _USER_ERROR and _was_taken(task, is_free):
                            waiting.append(task)
                            continue
                        read_result(task, child, notify)
                        yield task
                yield None
                time.sleep(_POLL)
        finally:
            stop_processes([child for _, child in active.values()])


def _is_free(task: SweepTask, others: Sequence[str], notify: Notify) -> bool:
    """Return whether the task can start now; update it if another process used its folder meanwhile."""
    exists = task.archive is None and task.folder.experiment.is_file()
    if exists and describe_difference(task.folder, task.run.experiment):
        place = place_again(task.run, task.folder.path.parent, others)
        task.run, task.folder = place.run, place.folder
        if place.remark:
            notify(place.remark)
    if task.folder.is_locked():
        if task.outcome != "locked":
            notify(f"{task.run.name} is in progress in another process; waiting for it to end")
        task.outcome = "locked"
        return False
    if task.archive is not None:
        task.outcome = "missing"
    else:
        task.read_folder()
    return True


def _was_taken(task: SweepTask, is_free: Callable[[SweepTask], bool]) -> bool:
    """Return whether another process started a run of this name first."""
    before = task.folder.path
    return not is_free(task) or task.folder.path != before
