"""Runs in Python: start one, resume it, read its metrics and its model."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, final

from safetensors.torch import load_file
from torch import nn

from fedcm.api.experiments import (
    Overrides,
    PythonExperiment,
    change_settings,
    check_count,
    check_experiment,
    get_builder,
    list_overrides,
    load_experiment,
)
from fedcm.api.metrics_table import MetricsTable
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.config.sections import Experiment
from fedcm.errors import Stopped, UserError, WorkerFailed, WriteFailed
from fedcm.runs.archive import make_archive_path
from fedcm.runs.build import build
from fedcm.runs.folder import RunFolder
from fedcm.runs.progress import say
from fedcm.runs.session import Session, make_default_name
from fedcm.runs.summary import bring_up_to_date, is_up_to_date, read_points
from fedcm.runs.torchrun import Launch
from fedcm.system.signals import StopSignals
from fedcm.trackers import load_trackers
from fedcm.trackers.observation import Callback, run_session
from fedcm.trackers.tracker import Tracker, track_finished

Notify = Callable[[str], None]
StopRequested = Callable[[], bool]


@final
class Run:
    """A run on disk: its experiment, its metrics, its summary and its model.

    Args:
        path: The run's folder.
        experiment: The experiment, if the run was made of Python objects.

    Raises:
        UserError: there is no run in this folder.
    """

    def __init__(self, path: str | Path, experiment: Experiment | None = None) -> None:
        self.folder = RunFolder.open(Path(path))
        self._experiment = experiment

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
        return self.folder.name

    @property
    def experiment(self) -> Experiment:
        """The experiment, with every default filled in and every automatic choice made."""
        return self._experiment or read_experiment(read_table(self.folder.experiment))

    @property
    def outcome(self) -> str:
        """ "finished", "diverged", "running" in another process, or "stopped"."""
        return self.summary.get("outcome") or ("running" if self.folder.is_locked() else "stopped")

    @property
    def metrics(self) -> MetricsTable:
        """One row per finished round. `pandas.DataFrame(run.metrics)` makes a data frame of it."""
        return MetricsTable(self.folder.read_metrics())

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json; empty if the run has not ended."""
        summary = self.folder.read_summary()
        if summary is None:
            return {}
        if is_up_to_date(summary):
            return summary
        lines = self.folder.read_metrics()
        return bring_up_to_date(summary, read_points(lines, "test_accuracy"), read_points(lines, "test_loss"))

    def model(self, module: nn.Module | None = None, *, data_dir: str | Path | None = None) -> nn.Module:
        """Return the trained model.

        Args:
            module: A module to load the parameters into. It is needed only for a run that was made of Python objects
                in another program.
            data_dir: Folder of prepared datasets, which give the shape of the inputs.

        Raises:
            UserError: the run has not finished, or the model cannot be built.
        """
        if not self.folder.model.is_file():
            raise UserError(
                f"the run {self.name!r} has no model yet, because it is {self.outcome}; resume it with fedcm.resume"
            )
        if module is None:
            module = self._build_model(None if data_dir is None else Path(data_dir))
        if not isinstance(module, nn.Module):
            raise UserError(f"module must be a torch.nn.Module, got {module!r}")
        try:
            module.load_state_dict(load_file(self.folder.model))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"the module does not have the parameters of the run's model: {reason}") from None
        return module.eval()

    def _build_model(self, data_dir: Path | None) -> nn.Module:
        experiment = self.experiment
        if isinstance(experiment, PythonExperiment):
            return experiment.copy_model()
        return build(experiment.without_autotune(), data_dir).problem.model

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {self.outcome}, {len(self.metrics)} rounds>"


def run(
    experiment: Experiment | str | Path,
    *,
    overrides: Overrides = (),
    name: str | None = None,
    runs_dir: str | Path = "runs",
    data_dir: str | Path | None = None,
    workers: int = 1,
    track: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    diagnose_every: int | None = None,
    fresh: bool = False,
    archive: Path | None = None,
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
        notify: Called with one sentence about each step, such as where the run is.
        stop_requested: Asked before every client; the run stops when it returns True. By default Ctrl-C stops it.
        launch: The processes that torchrun started, instead of workers.

    Returns:
        The run. Its outcome is "finished", "diverged" or "stopped".

    Raises:
        UserError: the experiment cannot work, or a run of this name exists.
        WorkerFailed: a worker or your own code failed.
        WriteFailed: the run's folder could not be written.

    >>> import fedcm, tempfile
    >>> run = fedcm.run("demo", overrides={"rounds": 3, "algorithm.name": "fedavg"}, runs_dir=tempfile.mkdtemp())
    >>> run.outcome, len(run.metrics), list(run.metrics.columns)[:3]
    ('finished', 3, ['round', 'cohort', 'clients'])
    """
    _check_arguments(workers, callbacks, diagnose_every)
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, overrides)
    elif overrides:
        raise UserError("overrides apply to a file or a name; change an Experiment with model_copy(update={…})")
    check_experiment(experiment)
    trackers, folder = load_trackers(track), Path(runs_dir)
    if fresh:
        name = name or make_default_name(experiment)
        archive = archive or make_archive_path(folder)
    else:
        archive = None
    with _stop_signals(stop_requested) as stop_requested:
        session = Session.start(
            experiment,
            folder,
            name,
            None if data_dir is None else Path(data_dir),
            stop_requested,
            archive=archive,
            workers=workers,
            launch=launch,
            build_setup=get_builder(experiment),
            fork=isinstance(experiment, PythonExperiment),
        )
        with session:
            _describe_start(session, archive, notify or _ignore)
            return _finish(session, trackers, callbacks, diagnose_every, progress, notify)


def resume(
    run: Run | str | Path,
    *,
    rounds: int | None = None,
    overrides: Overrides = (),
    experiment: Experiment | None = None,
    data_dir: str | Path | None = None,
    workers: int = 1,
    track: Sequence[str] = (),
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
        notify: Called with one sentence about each step.
        stop_requested: Asked before every client; the run stops when it returns True. By default Ctrl-C stops it.
        launch: The processes that torchrun started, instead of workers.

    Returns:
        The run. A run that has finished already is returned as it is.

    Raises:
        UserError: the run cannot be resumed, because its settings, data or model have changed.
    """
    _check_arguments(workers, callbacks, diagnose_every)
    opened = run if isinstance(run, Run) else Run(run)
    chosen = experiment if experiment is not None else opened._experiment
    settings = [*list_overrides(overrides), *([] if rounds is None else [f"rounds={rounds}"])]
    if chosen is not None:
        check_experiment(chosen)
        chosen = change_settings(chosen, settings)
        check_experiment(chosen)
    trackers, report = load_trackers(track), notify or _ignore
    if _has_all_rounds(opened, settings, chosen):
        report(f"run {opened.path} has finished already")
        track_finished(opened.folder, trackers)
        return opened
    with _stop_signals(stop_requested) as stop_requested:
        session = Session.resume(
            opened.path,
            None if data_dir is None else Path(data_dir),
            notify or say,
            stop_requested,
            settings=settings,
            experiment=chosen,
            workers=workers,
            launch=launch,
            build_setup=build if chosen is None else get_builder(chosen),
            fork=isinstance(chosen, PythonExperiment),
        )
        with session:
            report(f"run {opened.path} resumes at round {session.next_round} of {session.total_rounds}")
            return _finish(session, trackers, callbacks, diagnose_every, progress, notify)


def _check_arguments(workers: Any, callbacks: Any, diagnose_every: Any) -> None:
    check_count("workers", workers)
    if diagnose_every is not None:
        check_count("diagnose_every", diagnose_every)
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise UserError(f"callbacks must be a list of functions, got {callbacks!r}")


def _has_all_rounds(run: Run, settings: Sequence[str], experiment: Experiment | None) -> bool:
    """Return whether a run has finished and nothing else is asked for."""
    summary = run.folder.read_summary() or {}
    if summary.get("outcome") != "finished":
        return False
    before = read_table(run.folder.experiment)
    table = apply_overrides(before, settings)
    rounds = experiment.rounds if experiment is not None else table.get("rounds")
    return summary.get("rounds") == rounds and table | {"rounds": rounds} == before | {"rounds": rounds}


def _describe_start(session: Session, archive: Path | None, notify: Notify) -> None:
    folder, setup = session.folder, session.setup
    if archive is not None and (archive / folder.name).is_dir():
        notify(f"the run that was {folder.path} is {archive / folder.name} now")
    notify(f"run {folder.path}")
    if setup.step_milliseconds:
        engine = setup.experiment.engine
        notify(f"chosen by autotune: stack {engine.stack}, layout {engine.layout}, compile {engine.compile}")


def _stop_signals(stop_requested: StopRequested | None) -> AbstractContextManager[StopRequested]:
    return StopSignals(interactive=True) if stop_requested is None else nullcontext(stop_requested)


def _ignore(sentence: str) -> None:
    pass


def _finish(
    session: Session,
    trackers: Sequence[type[Tracker]],
    callbacks: Sequence[Callback],
    diagnose_every: int | None,
    progress: bool,
    notify: Notify | None,
) -> Run:
    experiment = session.setup.experiment
    try:
        run_session(
            session,
            trackers=trackers,
            callbacks=callbacks,
            diagnose_every=diagnose_every,
            progress=progress,
            notify=notify or say,
        )
    except Stopped:
        pass
    except (WorkerFailed, WriteFailed) as failure:
        failure.run = session.folder.path
        raise
    return Run(session.folder.path, experiment if isinstance(experiment, PythonExperiment) else None)
