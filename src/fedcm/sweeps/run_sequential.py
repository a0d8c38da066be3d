"""Run a sweep under torchrun: one run after another, each on all processes."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedcm.runs.progress import say
from fedcm.runs.session import Session
from fedcm.runs.torchrun import Launch
from fedcm.sweeps.tasks import SweepTask
from fedcm.trackers.observation import run_session
from fedcm.trackers.tracker import Tracker


def run_sequential(
    tasks: Sequence[SweepTask],
    data_dir: Path | None,
    launch: Launch,
    stop_requested: Callable[[], bool],
    trackers: Sequence[type[Tracker]] = (),
) -> Iterator[SweepTask]:
    """Run the remaining tasks one after another; yield each task when it has ended."""
    for position, task in enumerate(tasks, 1):
        title = f"{task.run.name} ({position} of {len(tasks)})"
        if task.has_ended:
            continue
        restarted = task.folder.was_started_by(launch.job)
        if task.folder.experiment.is_file() and (restarted or task.archive is None):
            session = Session.resume(task.folder.path, data_dir, say, stop_requested, launch=launch)
        else:
            runs_dir, name = task.folder.path.parent, task.run.name
            session = Session.start(
                task.run.experiment, runs_dir, name, data_dir, stop_requested, archive=task.archive, launch=launch
            )
        task.state = run_session(session, trackers=trackers, title=title)
        task.why = (task.folder.read_summary() or {}).get("reason", "")
        task.done = task.rounds
        yield task
