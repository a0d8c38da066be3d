"""A session: one run in progress, from its folder to its last round.

`Session.start` begins a new run and `Session.resume` continues a stopped one. Both work like `open`: use the session
in a `with` block, or call `close`. The session owns the lock on the run's folder, the worker processes, the process
group and the rounds.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, final

from fedcm.config.experiment import read_experiment, to_toml
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.config.sections import Experiment
from fedcm.core.algorithm import Round
from fedcm.core.executor import Executor
from fedcm.core.metrics import Metrics, RoundMetrics
from fedcm.core.round_loop import FinishedRound, run_rounds
from fedcm.core.stopping import BestRound, StopReason
from fedcm.data.federated import ArrayData
from fedcm.errors import Diverged, Stopped, TrainingFailed, UserError, WriteFailed
from fedcm.executors.diagnosis import diagnose
from fedcm.executors.process_group import to_training_failure
from fedcm.privacy.key_file import create_noise_key
from fedcm.runs.build import BuildSetup, TrainingSetup, build
from fedcm.runs.checkpoint import Checkpoint
from fedcm.runs.evidence.manifest import remove_manifest
from fedcm.runs.evidence.verification import reject_damage
from fedcm.runs.folder import RunExistsError, RunFolder, reject_file_as_folder
from fedcm.runs.identity import (
    make_default_name,
    make_provenance,
    reject_changed_data,
    reject_changed_settings,
    reject_unusable_name,
    report_changed_versions,
)
from fedcm.runs.recorder import RunRecorder
from fedcm.runs.workers import handshake
from fedcm.runs.workers.connection import Workers, can_fork, check_workers, limit_workers
from fedcm.runs.workers.torchrun import Launch
from fedcm.system.callbacks import Notify, StopRequested, ignore_message
from fedcm.system.error_messages import add_note, describe_os_error, find_user_code
from fedcm.system.files import find_free_path


@final
@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """How a session works. None of these options changes the results.

    Attributes:
        data_dir: Folder of prepared datasets.
        workers: Processes on this machine that share each round, this one included.
        launch: The processes that torchrun started, instead of workers.
        build_setup: Builds the objects that train.
        fork: Always start workers by fork, so that they share Python objects of this process.
        diagnoses: Whether `Session.rounds` will diagnose rounds; a model that cannot be diagnosed is rejected at once.
        notify: Called with one sentence about each thing that the user should know; ignored by default.
        stop_requested: Called before every client; the run stops when it returns True.
    """

    data_dir: Path | None = None
    workers: int = 1
    launch: Launch | None = None
    build_setup: BuildSetup = build
    fork: bool = False
    diagnoses: bool = False
    notify: Notify = ignore_message
    stop_requested: StopRequested = lambda: False

    def check(self, experiment: Experiment) -> None:
        """Raise a UserError if the workers cannot be started."""
        if self.workers > 1 and self.launch is None:
            check_workers(experiment, fork=self.fork)

    def build(self, experiment: Experiment) -> TrainingSetup:
        """Build the objects that train, and raise a UserError if they cannot be diagnosed as requested."""
        setup = self.build_setup(experiment, self.data_dir)
        if self.diagnoses:
            reject_diagnosis(setup)
        return setup


_DEFAULTS = SessionOptions()


@final
class Session:
    """One run in progress.

    Attributes:
        folder: The run's folder; locked until `close`.
        setup: The objects that train.
        server: The algorithm's server state after the last finished round.
        next_round: The next round to run.
        stop_reason: Why the run ended early, once it has.
    """

    def __init__(self, recorder: RunRecorder, saved: Checkpoint | None, options: SessionOptions) -> None:
        """For `start` and `resume`. The folder must be locked."""
        self.folder, self.setup, self.states = recorder.folder, recorder.setup, recorder.states
        self.server = saved.server if saved is not None else self.setup.init_server()
        self.next_round = saved.next_round if saved is not None else 0
        self.stop_reason: StopReason | None = None
        self._recorder = recorder
        self._outer_stop_requested = options.stop_requested
        self._stopping = False
        self._workers = self._start_workers(options)

    @classmethod
    def start(
        cls,
        experiment: Experiment,
        runs_dir: Path,
        name: str | None = None,
        *,
        archive: Path | None = None,
        options: SessionOptions = _DEFAULTS,
    ) -> Self:
        """Start a new run. Everything is built and checked before its folder appears.

        Args:
            experiment: What to run.
            runs_dir: The folder that the run's own folder is created in.
            name: The run's name. By default it is made of experiment, algorithm and seed, with a number if needed.
            archive: Folder that an existing run of the same name is moved to.
            options: How the session works.

        Raises:
            UserError: If the experiment cannot work, or a run of this name exists and `archive` is not given.
        """
        if name is not None:
            reject_unusable_name(name)
        reject_file_as_folder(runs_dir)
        options.check(experiment)
        setup = options.build(experiment)
        for notice in setup.notices:
            options.notify(notice)
        if options.launch is not None:
            handshake.propose_run(options.launch.group, setup, runs_dir)
        provenance = make_provenance(setup, options.launch.job if options.launch is not None else None)
        with ExitStack() as stack:
            folder = _create_folder(runs_dir, name, setup.experiment, provenance, archive)
            stack.callback(folder.unlock)
            if setup.experiment.privacy.secret:
                create_noise_key(folder.path)
            setup = setup.with_noise_key(folder.path)
            states = stack.enter_context(closing(setup.open_client_states(folder.client_states)))
            _announce_end(setup, options.notify)
            session = cls(RunRecorder(folder, setup, states), None, options)
            stack.pop_all()  # the session closes them
            return session

    @classmethod
    def resume(
        cls,
        path: Path,
        *,
        overrides: Sequence[str] = (),
        experiment: Experiment | None = None,
        options: SessionOptions = _DEFAULTS,
    ) -> Self:
        """Resume a stopped run from its newest complete checkpoint.

        Args:
            path: The run's folder.
            overrides: Settings to change, such as `rounds=200`. Finished rounds must not depend on them.
            experiment: The experiment, if the run's experiment.toml does not describe it fully.
            options: How the session works.

        Raises:
            UserError: If there is no such run, its experiment, data or model have changed, or a file of a finished
                run is damaged.
        """
        folder = RunFolder.open(path)
        with ExitStack() as stack:
            folder.lock()
            stack.callback(folder.unlock)
            reject_damage(folder)
            changed = experiment is not None or bool(overrides)
            if experiment is None:
                experiment = read_experiment(apply_overrides(read_table(folder.experiment), overrides))
            options.check(experiment)
            reject_changed_settings(folder, experiment)
            report_changed_versions(folder, options.notify)
            setup = options.build(experiment)
            reject_changed_data(folder, setup)
            setup = setup.with_noise_key(folder.path)
            _announce_end(setup, options.notify)
            states = stack.enter_context(closing(setup.open_client_states(folder.client_states)))
            recorder = RunRecorder(folder, setup, states)
            saved = recorder.load_checkpoint(options.notify)
            if changed:
                remove_manifest(folder.path)
                folder.rewrite_experiment(to_toml(experiment))
            if options.launch is not None:
                handshake.propose_run(options.launch.group, setup, path.parent)
            session = cls(recorder, saved, options)
            stack.pop_all()  # the session closes them
            return session

    def _start_workers(self, options: SessionOptions) -> Workers:
        if options.launch is not None:
            return Workers.join(options.launch)
        count = limit_workers(options.workers, self.setup.plan, self.setup.experiment.engine.device)
        if not options.fork and not can_fork(self.setup.experiment):
            return Workers.spawn(self.folder.path, count, self.setup, options.data_dir)
        # a fork unlocks its copy of the lock only, so that the lock ends with rank 0, however that ends
        return Workers.fork(self.folder.path, count, self.setup, self._stop_requested, self.folder.unlock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and unlock the folder. A group that torchrun started stays open for the next run."""
        with ExitStack() as stack:  # every step happens, even if Ctrl-C interrupts another one
            stack.callback(self.folder.unlock)
            stack.callback(self.states.close)
            stack.callback(self._workers.close)

    def go_back(self, round: int, notify: Notify) -> None:
        """Continue from the newest complete checkpoint before `round` instead of the newest one.

        Call this before `rounds`, which then removes what the run wrote later.

        Raises:
            UserError: If there is none.
        """
        saved = self._recorder.load_checkpoint(notify, latest=round)
        assert saved is not None
        self.server, self.next_round = saved.server, saved.next_round

    def request_stop(self) -> None:
        """Stop the run before its next client, as a stop signal does."""
        self._stopping = True

    def _stop_requested(self) -> bool:
        return self._stopping or self._outer_stop_requested()

    @property
    def total_rounds(self) -> int:
        """The number of rounds of the whole run."""
        return self.setup.plan.rounds

    def rounds(self, executor: Executor | None = None, *, diagnose_every: int | None = None) -> Iterator[RoundMetrics]:
        """Run the remaining rounds and write each one to the folder.

        Args:
            executor: Runs the clients. By default they train in this process and its workers.
            diagnose_every: Rounds between diagnoses; none by default.

        Yields:
            The metrics of each round, after they are written.

        Raises:
            Stopped: If the user asked to stop; finished rounds are saved.
            Diverged: If training diverged; the summary says so.
            TrainingFailed: If a worker died, or the user's own code failed.
            WriteFailed: If the folder could not be written.
        """
        if diagnose_every is not None:
            reject_diagnosis(self.setup)
        try:
            self._recorder.clear_leftovers(self.next_round)
            before = self.folder.read_metrics(self.next_round) if self._depends_on_metrics else []
            self.stop_reason = self.setup.plan.find_stop(self.next_round, before)
            executor = executor or self._workers.make_executor(
                self.folder.path, self.setup, self.states, self.server, self.next_round, self._stop_requested, before
            )
            with self._workers.watch():
                yield from self._write_rounds(executor, before, diagnose_every)
            self._recorder.finish(self.server)
        except OSError as error:
            if find_user_code(error) is not None:
                raise to_training_failure(error, "the run failed") from error
            raise WriteFailed(describe_os_error(error)) from error
        except (Diverged, UserError, Stopped, TrainingFailed):
            raise
        except Exception as error:
            raise to_training_failure(error, "the run failed") from error

    @property
    def _depends_on_metrics(self) -> bool:
        """Whether the remaining rounds need the metrics of those before: for themselves, or to find the best model."""
        return bool(self.setup.plan.watched_columns) or self.setup.best_by is not None

    def _write_rounds(
        self, executor: Executor, before: Sequence[Metrics], diagnose_every: int | None
    ) -> Iterator[RoundMetrics]:
        setup, every = self.setup, self.setup.experiment.checkpoints.every
        saved = self.next_round
        best = BestRound(setup.best_by, before) if setup.best_by is not None else None
        try:
            for finished in run_rounds(setup.algorithm, executor, setup.plan, self.server, self.next_round, before):
                is_due = diagnose_every is not None and (finished.index + 1) % diagnose_every == 0
                metrics = replace(finished.metrics, diagnosis=self._diagnose(finished) if is_due else None)
                self._reject_changed_data()
                self.folder.append(metrics.to_dict())
                self.server, self.next_round = finished.server, finished.index + 1
                if best is not None and best.add(metrics.to_dict()):
                    self._recorder.save_best_model(finished.index, self.server)
                if metrics.client_scores is not None:
                    self.folder.write_client_results(metrics.client_scores.to_dict(finished.index))
                self.stop_reason = finished.stop
                if self.next_round % every == 0 or self.next_round == self.total_rounds or finished.stop:
                    self._recorder.save(self.next_round, self.server)
                    saved = self.next_round
                yield metrics
                self._reject_changed_data()
        except Stopped:
            if self.next_round > saved:
                self._recorder.save(self.next_round, self.server)
            raise
        except Diverged as reason:
            self._recorder.record_divergence(self.server, str(reason))
            raise

    def _reject_changed_data(self) -> None:
        if isinstance(data := self.setup.runner.data, ArrayData):
            data.reject_changes()

    def _diagnose(self, finished: FinishedRound) -> Metrics | None:
        plan, index = self.setup.plan, finished.index + 1
        client_lr, server_lr = plan.schedule.client_lr_at(index), plan.schedule.server_lr_at(index)
        round = Round(index, client_lr, server_lr, 0, plan.population, math.nan)
        try:
            return diagnose(self.setup.runner, self.states, finished.server, round, stop_requested=self._stop_requested)
        except Stopped:  # the next round stops; this one is finished
            return None
        except Exception as error:
            add_note(error, f"the diagnosis after round {finished.index} failed")
            raise


def _announce_end(setup: TrainingSetup, notify: Notify) -> None:
    """Tell the user before the run if its privacy budget ends it early."""
    rounds, budget = setup.plan.last_round + 1, setup.plan.budget
    if budget is not None and rounds < setup.plan.rounds:
        notify(
            f"the privacy budget of {budget.limit:g} pays for {rounds} of {setup.plan.rounds} rounds; then the run ends"
        )


def reject_diagnosis(setup: TrainingSetup) -> None:
    """Raise UserError if the rounds cannot be diagnosed, because clients have parameters of their own."""
    if setup.problem.personal_size:
        raise UserError("a model with personal parameters cannot be diagnosed; leave --diagnose out")


def _create_folder(
    runs_dir: Path, name: str | None, experiment: Experiment, provenance: dict[str, Any], archive: Path | None
) -> RunFolder:
    text = to_toml(experiment)
    while True:
        path = runs_dir / name if name is not None else find_free_path(runs_dir / make_default_name(experiment))
        try:
            return RunFolder.create(path, text, provenance, archive=archive)
        except RunExistsError:
            if name is not None:
                raise  # otherwise another process took the free name first
