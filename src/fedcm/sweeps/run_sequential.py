"""Run a sweep under torchrun: one run after another, each on all processes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedcm.runs.session import Session, SessionOptions
from fedcm.runs.workers.torchrun import Launch
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.callbacks import Notify, StopRequested
from fedcm.trackers.observation import ShowProgress, run_session
from fedcm.trackers.tracker import Tracker


def run_sequential(
    tasks: Sequence[SweepTask],
    data_dir: Path | None,
    launch: Launch,
    stop_requested: StopRequested,
    trackers: Sequence[type[Tracker]] = (),
    *,
    notify: Notify,
    show_progress: ShowProgress | None = None,
) -> Iterator[SweepTask]:
    """Run the remaining tasks one after another; yield each task when it has ended."""
    options = SessionOptions(data_dir=data_dir, launch=launch, notify=notify, stop_requested=stop_requested)
    for position, task in enumerate(tasks, 1):
        title = f"{task.run.name} ({position} of {len(tasks)})"
        if task.has_ended:
            continue
        restarted = task.folder.was_started_by(launch.job)
        if task.folder.experiment.is_file() and (restarted or task.archive is None):
            session = Session.resume(task.folder.path, options=options)
        else:
            runs_dir, name = task.folder.path.parent, task.run.name
            session = Session.start(task.run.experiment, runs_dir, name, archive=task.archive, options=options)
        with session:
            task.outcome = run_session(
                session, trackers=trackers, title=title, show_progress=show_progress, notify=notify
            )
        task.reason = (task.folder.read_summary() or {}).get("reason", "")
        task.rounds_done = task.rounds
        yield task
