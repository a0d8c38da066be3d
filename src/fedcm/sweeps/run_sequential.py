"""The runs of a series one after another in the processes that torchrun started, which all take part in each."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedcm.errors import Diverged
from fedcm.runs.progress import say, show_progress
from fedcm.runs.running import drive
from fedcm.runs.starting import begin, resume
from fedcm.runs.torchrun import Launch
from fedcm.sweeps.run_parallel import SweepTask
from fedcm.trackers.tracker import Tracker, track


def run_sequential(
    tasks: Sequence[SweepTask],
    data_dir: Path | None,
    launch: Launch,
    stop_requested: Callable[[], bool],
    trackers: Sequence[type[Tracker]] = (),
) -> Iterator[SweepTask]:
    """Gives each task when it is over."""
    for position, task in enumerate(tasks, 1):
        title = f"{task.run.name} ({position} of {len(tasks)})"
        if task.over:
            continue
        mine = task.folder.is_of(launch.job)  # begun before a restart
        if task.folder.experiment.is_file() and (mine or task.archive is None):
            run = resume(task.folder.path, data_dir, say, stop_requested, launch=launch)
        else:
            where = task.folder.path.parent, task.run.name
            run = begin(task.run.experiment, *where, data_dir, stop_requested, archive=task.archive, launch=launch)
        try:
            rounds = show_progress(drive(run), run.rounds, run.first, title)
            for _ in track(rounds, run.folder, run.first, trackers):
                pass
            task.state = "finished"
        except Diverged as reason:
            task.state, task.why = "diverged", str(reason)
        task.done = task.rounds
        yield task
