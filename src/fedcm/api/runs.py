"""Runs in Python: start one, resume it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedcm.api.arguments import (
    AnyPath,
    Overrides,
    format_overrides,
    to_count,
    to_optional_path,
    to_path,
    to_words,
)
from fedcm.api.experiments import PythonExperiment, check_experiment, get_builder, load_experiment, override_experiment
from fedcm.api.progress import say, show_progress
from fedcm.api.saved_run import Run
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.config.sections import Experiment
from fedcm.errors import Stopped, TrainingFailed, UserError, WriteFailed
from fedcm.runs.archive import make_archive_path
from fedcm.runs.build import build
from fedcm.runs.evidence.verification import reject_damage
from fedcm.runs.folder import find_run_of_job
from fedcm.runs.identity import make_default_name
from fedcm.runs.session import Session, SessionOptions
from fedcm.runs.timing import describe_reading
from fedcm.runs.workers.torchrun import Launch
from fedcm.system.callbacks import Notify, StopRequested
from fedcm.system.signals import handle_ctrl_c
from fedcm.trackers import load_trackers
from fedcm.trackers.observation import Callback, run_session
from fedcm.trackers.tracker import Tracker, track_finished


def run(
    experiment: Experiment | AnyPath,
    *,
    overrides: Overrides = (),
    name: str | None = None,
    runs_dir: AnyPath = "runs",
    data_dir: AnyPath | None = None,
    workers: int = 1,
    track: str | Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    diagnose_every: int | None = None,
    fresh: bool = False,
    archive: AnyPath | None = None,
    progress: bool = False,
    notify: Notify | None = None,
    stop_requested: StopRequested | None = None,
    launch: Launch | None = None,
) -> Run:
    """Run an experiment in a folder of its own.

    Ctrl-C stops the run after the current client; all finished rounds are saved, and `fedcm.resume` continues it.

    Args:
        experiment: An experiment, a TOML file, or the name of a bundled experiment.
        overrides: Settings to change, if a file or a name is given.
        name: The run's name; by default made of experiment, algorithm and seed.
        runs_dir: The folder that the run's folder is created in.
        data_dir: Folder of prepared datasets.
        workers: Processes that share each round. The bits do not depend on it.
        track: Also log to "tensorboard", "mlflow" or "wandb".
        callbacks: Functions that are called with the metrics of every round. If one returns True, the run stops.
        diagnose_every: Rounds between measurements of drift, noise and dissimilarity; none by default.
        fresh: Start again if a run of this name exists; that run is moved to the archive.
        archive: The folder that `fresh` moves a run to; by default a new one in `runs_dir/archive`.
        progress: Show a progress line on stderr.
        notify: Called with one sentence about each thing to know, such as where the run is; by default they are printed
            on stderr.
        stop_requested: Called before every client; the run stops when it returns True. By default Ctrl-C stops it.
        launch: For the command under torchrun, which passes the processes that torchrun started; they replace
            `workers`. A run that this job started before a restart is resumed.

    Returns:
        The run. Its outcome is "finished", "diverged" or "stopped".

    Raises:
        UserError: If the experiment cannot work, or a run of this name exists.
        TrainingFailed: If your own code or a worker failed during training.
        WriteFailed: If the run's folder could not be written.

    >>> import fedcm, tempfile
    >>> run = fedcm.run("demo", overrides={"rounds": 3, "algorithm.name": "fedavg"}, runs_dir=tempfile.mkdtemp())
    >>> run.outcome, len(run.metrics), list(run.metrics.columns)[:3]
    ('finished', 3, ['round', 'cohort', 'clients'])
    """
    observers = _Observers.from_arguments(track, callbacks, diagnose_every, progress, notify)
    workers = to_count("workers", workers)
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, overrides)
    elif overrides:
        raise UserError("overrides apply to a file or a name; change an Experiment with model_copy(update={…})")
    check_experiment(experiment)
    folder = to_path("runs_dir", runs_dir)
    if launch is not None and (restarted := find_run_of_job(launch.job, folder)) is not None:
        return resume(
            restarted.path,
            data_dir=data_dir,
            track=track,
            callbacks=callbacks,
            diagnose_every=diagnose_every,
            progress=progress,
            notify=notify,
            stop_requested=stop_requested,
            launch=launch,
        )
    data_folder, moved_to = to_optional_path("data_dir", data_dir), to_optional_path("archive", archive)
    if fresh:
        name = name or make_default_name(experiment)
        moved_to = moved_to or make_archive_path(folder)
    else:
        moved_to = None
    with handle_ctrl_c(stop_requested) as stop_requested:
        options = SessionOptions(
            data_dir=data_folder,
            workers=workers,
            launch=launch,
            build_setup=get_builder(experiment),
            fork=isinstance(experiment, PythonExperiment),
            diagnoses=diagnose_every is not None,
            notify=observers.notify,
            stop_requested=stop_requested,
        )
        with Session.start(experiment, folder, name, archive=moved_to, options=options) as session:
            _describe_start(session, moved_to, observers.notify)
            return observers.run(session)


def resume(
    run: Run | AnyPath,
    *,
    rounds: int | None = None,
    overrides: Overrides = (),
    experiment: Experiment | None = None,
    data_dir: AnyPath | None = None,
    workers: int = 1,
    track: str | Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    diagnose_every: int | None = None,
    progress: bool = False,
    notify: Notify | None = None,
    stop_requested: StopRequested | None = None,
    launch: Launch | None = None,
) -> Run:
    """Resume a stopped run from its newest checkpoint. The result has the bits of a run that was not stopped.

    Args:
        run: The run, or its folder.
        rounds: A new total number of rounds, to make the run longer.
        overrides: Other settings to change that finished rounds do not depend on: evaluation.targets, checkpoints.
        experiment: The experiment, for a run that was made of Python objects in another program.
        data_dir: Folder of prepared datasets.
        workers: Processes that share each round.
        track: Also log to "tensorboard", "mlflow" or "wandb".
        callbacks: Functions that are called with the metrics of every round. If one returns True, the run stops.
        diagnose_every: Rounds between measurements of drift, noise and dissimilarity; none by default.
        progress: Show a progress line on stderr.
        notify: Called with one sentence about each thing to know; by default they are printed on stderr.
        stop_requested: Called before every client; the run stops when it returns True. By default Ctrl-C stops it.
        launch: For the command under torchrun, as for `fedcm.run`.

    Returns:
        The run. A run that has finished already is returned unchanged.

    Raises:
        UserError: If the run cannot be resumed, because its settings, data or model have changed, or a file of a
            finished run is damaged.
    """
    observers = _Observers.from_arguments(track, callbacks, diagnose_every, progress, notify)
    workers, data_folder = to_count("workers", workers), to_optional_path("data_dir", data_dir)
    opened = run if isinstance(run, Run) else Run(run)
    chosen = experiment if experiment is not None else opened._experiment
    changes = [*format_overrides(overrides), *([] if rounds is None else [f"rounds={rounds}"])]
    if chosen is not None:
        check_experiment(chosen)
        chosen = override_experiment(chosen, changes)
        check_experiment(chosen)
    reject_damage(opened.folder)
    if _has_all_rounds(opened, changes, chosen):
        observers.notify(f"run {opened.path} has finished already{_describe_early_end(opened)}")
        track_finished(opened.folder, observers.trackers, observers.notify)
        return opened
    with handle_ctrl_c(stop_requested) as stop_requested:
        options = SessionOptions(
            data_dir=data_folder,
            workers=workers,
            launch=launch,
            build_setup=build if chosen is None else get_builder(chosen),
            fork=isinstance(chosen, PythonExperiment),
            diagnoses=diagnose_every is not None,
            notify=observers.notify,
            stop_requested=stop_requested,
        )
        with Session.resume(opened.path, overrides=changes, experiment=chosen, options=options) as session:
            observers.notify(f"run {opened.path} resumes at round {session.next_round} of {session.total_rounds}")
            return observers.run(session)


def _has_all_rounds(run: Run, overrides: Sequence[str], experiment: Experiment | None) -> bool:
    """Return whether a run has finished and nothing else is requested."""
    summary = run.folder.read_summary() or {}
    if summary.get("outcome") != "finished":
        return False
    before = read_table(run.folder.experiment)
    table = apply_overrides(before, overrides)
    rounds = experiment.rounds if experiment is not None else table.get("rounds")
    complete = summary.get("rounds") == rounds or "stopped_early" in summary
    return complete and table | {"rounds": rounds} == before | {"rounds": rounds}


def _describe_early_end(run: Run) -> str:
    end = (run.folder.read_summary() or {}).get("stopped_early")
    return "" if end is None else f", because it ended early: {end['reason']}; to continue it, set another stop"


def _describe_start(session: Session, archive: Path | None, notify: Notify) -> None:
    folder, setup = session.folder, session.setup
    if archive is not None and (archive / folder.name).is_dir():
        notify(f"the run that was {folder.path} is {archive / folder.name} now")
    notify(f"run {folder.path}")
    if setup.problem.personal_size and not setup.plan.evaluates_clients:
        notify(
            "nothing will be evaluated, because a model with personal parameters is evaluated at its clients; set "
            "evaluation.clients = 0.2, for example"
        )
    if (reading := describe_reading(setup.step_milliseconds)) is not None:
        notify(reading)
    if setup.tuned_settings:
        engine = setup.experiment.engine
        notify(f"chosen by autotune: stack {engine.stack}, layout {engine.layout}, compile {engine.compile}")


@dataclass(frozen=True)
class _Observers:
    """Everything that watches the rounds of a run."""

    trackers: Sequence[type[Tracker]]
    callbacks: Sequence[Callback]
    diagnose_every: int | None
    progress: bool
    notify: Notify

    @classmethod
    def from_arguments(
        cls, track: Any, callbacks: Any, diagnose_every: Any, progress: bool, notify: Notify | None
    ) -> Self:
        """Check the arguments of `run` and `resume`."""
        if diagnose_every is not None:
            diagnose_every = to_count("diagnose_every", diagnose_every)
        if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
            raise UserError(f"callbacks must be a list of functions, got {callbacks!r}")
        return cls(load_trackers(to_words("track", track)), callbacks, diagnose_every, progress, notify or say)

    def run(self, session: Session) -> Run:
        """Run the remaining rounds of a session."""
        experiment = session.setup.experiment
        try:
            run_session(
                session,
                trackers=self.trackers,
                callbacks=self.callbacks,
                diagnose_every=self.diagnose_every,
                show_progress=show_progress if self.progress else None,
                notify=self.notify,
            )
        except Stopped:
            pass
        except (TrainingFailed, WriteFailed) as failure:
            failure.run = session.folder.path
            raise
        return Run(session.folder.path, experiment if isinstance(experiment, PythonExperiment) else None)
