"""A session: one run in progress, from its folder to its last round.

`Session.start` begins a new run and `Session.resume` continues a stopped one. Both work like `open`: use the session
in a `with` block, or call `close`. The session owns the lock on the run's folder, the worker processes, the process
group and the rounds.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, final

from torch import Tensor

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.experiment import read_experiment, to_table, to_toml
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.config.sections import Experiment
from fedcm.core.algorithm import Round
from fedcm.core.executor import Executor
from fedcm.core.metrics import Metrics, RoundMetrics
from fedcm.core.round_loop import FinishedRound, run_rounds
from fedcm.data.shared_memory import share_dataset
from fedcm.errors import Diverged, Stopped, UserError, WorkerFailed, WriteFailed
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.diagnosis import Diagnosis, diagnose
from fedcm.executors.distributed import DistributedExecutor
from fedcm.executors.local import LocalExecutor
from fedcm.executors.process_group import ProcessGroup, reject_second_group, to_worker_failure
from fedcm.runs import checkpoint, handshake
from fedcm.runs.build import BuildSetup, TrainingSetup, build
from fedcm.runs.checkpoint import Checkpoint
from fedcm.runs.folder import RunExistsError, RunFolder, find_free_name, make_provenance, read_versions
from fedcm.runs.handshake import StartState
from fedcm.runs.summary import hash_params, summarise
from fedcm.runs.torchrun import Launch
from fedcm.runs.worker import run_forked_worker
from fedcm.runs.worker_pool import WorkerPool
from fedcm.system.error_messages import add_note, find_user_code

Notify = Callable[[str], None]
StopRequested = Callable[[], bool]

# settings that may change between a run's start and its resume, because the finished rounds do not depend on them
_FREE_SETTINGS = ("name", "rounds", "checkpoints", "data", "cell")  # data are compared by their checksums


@final
class Session:
    """One run in progress.

    Attributes:
        folder: The run's folder; locked until `close`.
        setup: The objects that train.
        server: The algorithm's server state after the last finished round.
        next_round: The next round to run.
        diagnosis: What to measure beside the rounds; nothing by default.
    """

    def __init__(
        self,
        folder: RunFolder,
        setup: TrainingSetup,
        server: Any,
        states: ClientStatesInFile,
        next_round: int,
        stop_requested: StopRequested,
    ) -> None:
        """For `start` and `resume`. The folder must be locked."""
        self.folder = folder
        self.setup = setup
        self.server = server
        self.states = states
        self.next_round = next_round
        self.diagnosis: Diagnosis | None = None
        self._outer_stop_requested = stop_requested
        self._stopping = False
        self._group: ProcessGroup | None = None
        self._pool: WorkerPool | None = None

    @classmethod
    def start(
        cls,
        experiment: Experiment,
        runs_dir: Path,
        name: str | None = None,
        data_dir: Path | None = None,
        stop_requested: StopRequested = lambda: False,
        *,
        archive: Path | None = None,
        workers: int = 1,
        launch: Launch | None = None,
        build_setup: BuildSetup = build,
        fork: bool = False,
    ) -> Self:
        """Start a new run. Everything is built and checked before its folder appears.

        Args:
            experiment: What to run.
            runs_dir: The folder that the run's own folder is created in.
            name: The run's name. By default it is made of experiment, algorithm and seed, with a number if needed.
            data_dir: Folder of prepared datasets.
            stop_requested: Asked before every client; the run stops when it returns true.
            archive: Folder that an existing run of the same name is moved to.
            workers: Processes on this machine that share each round, this one included.
            launch: The processes that torchrun started, instead of workers.
            build_setup: Builds the objects that train.
            fork: Start workers by fork, so that they share Python objects of this process.

        Raises:
            UserError: the experiment cannot work, or a run of this name exists and `archive` is not given.
        """
        if name is not None:
            reject_unusable_name(name)
        if workers > 1 and launch is None:
            _check_workers(experiment, fork)
        setup = build_setup(experiment, data_dir)
        if launch is not None:
            handshake.propose_run(launch.group, setup, runs_dir)
        experiment = setup.experiment
        provenance = make_provenance(
            setup.checksums,
            hash_settings(experiment),
            setup.step_milliseconds,
            launch.job if launch is not None else None,
            setup.problem.hash_constants(),
        )
        folder = _create_folder(runs_dir, name, experiment, provenance, archive)
        try:
            server = setup.algorithm.init_server(setup.problem.initial_params)
            states = setup.open_client_states(folder.client_states)
            session = cls(folder, setup, server, states, 0, stop_requested)
            session._add_workers(data_dir, workers, launch, fork)
        except BaseException:
            folder.unlock()
            raise
        return session

    @classmethod
    def resume(
        cls,
        path: Path,
        data_dir: Path | None = None,
        notify: Notify = print,
        stop_requested: StopRequested = lambda: False,
        *,
        settings: Sequence[str] = (),
        experiment: Experiment | None = None,
        workers: int = 1,
        launch: Launch | None = None,
        build_setup: BuildSetup = build,
        fork: bool = False,
    ) -> Self:
        """Resume a stopped run from its newest complete checkpoint.

        Args:
            path: The run's folder.
            data_dir: Folder of prepared datasets.
            notify: Called with one sentence about each thing that the user should know.
            stop_requested: Asked before every client; the run stops when it returns true.
            settings: Settings to change, such as `rounds=200`. Finished rounds must not depend on them.
            experiment: The experiment, if the run's experiment.toml does not describe it fully.
            workers: Processes on this machine that share each round, this one included.
            launch: The processes that torchrun started, instead of workers.
            build_setup: Builds the objects that train.
            fork: Start workers by fork, so that they share Python objects of this process.

        Raises:
            UserError: there is no such run, or its experiment, data or model have changed.
        """
        folder = RunFolder.open(path)
        folder.lock()
        try:
            changed = experiment is not None or bool(settings)
            if experiment is None:
                experiment = read_experiment(apply_overrides(read_table(folder.experiment), settings))
            if workers > 1 and launch is None:
                _check_workers(experiment, fork)
            session = cls._restore(folder, experiment, data_dir, notify, stop_requested, build_setup)
            if changed:
                folder.rewrite_experiment(to_toml(experiment))
            if launch is not None:
                handshake.propose_run(launch.group, session.setup, path.parent)
            session._add_workers(data_dir, workers, launch, fork)
        except BaseException:
            folder.unlock()
            raise
        return session

    @classmethod
    def _restore(
        cls,
        folder: RunFolder,
        experiment: Experiment,
        data_dir: Path | None,
        notify: Notify,
        stop_requested: StopRequested,
        build_setup: BuildSetup,
    ) -> Self:
        provenance = folder.read_provenance()
        if provenance.get("experiment_sha256") != hash_settings(experiment):
            raise UserError(
                f"{str(folder.experiment)!r} must be as it was when the run began, except for rounds, "
                "evaluation.targets and checkpoints, and other settings changed; start a new run with them"
            )
        _report_other_versions(provenance.get("versions", {}), notify)
        setup = build_setup(experiment, data_dir)
        _reject_changes(folder, setup, provenance)
        server, first_round = setup.algorithm.init_server(setup.problem.initial_params), 0
        states = setup.open_client_states(folder.client_states)
        try:
            saved = checkpoint.read_newest(folder.checkpoints, server, states.try_restore, notify)
            if saved is None and checkpoint.exists(folder.checkpoints):
                raise UserError(
                    f"no checkpoint of {str(folder.path)!r} is complete; start a new run with "
                    f"`fedcm run {folder.experiment}`"
                )
            if saved is not None:
                server, first_round = saved.server, saved.next_round
            if first_round > setup.plan.rounds:
                raise UserError(
                    f"rounds must be at least {first_round}, the number that the run {folder.name!r} has finished, got "
                    f"{setup.plan.rounds}"
                )
        except BaseException:
            states.close()
            raise
        return cls(folder, setup, server, states, first_round, stop_requested)

    def _add_workers(self, data_dir: Path | None, workers: int, launch: Launch | None, fork: bool) -> None:
        if launch is not None:
            self._group = launch.group
        elif workers > 1 and fork:
            folder, setup, stop_requested = self.folder, self.setup, self._stop_requested

            def work(group: ProcessGroup) -> None:
                folder.unlock()  # closes the fork's copy only, so that the lock ends with rank 0, however that ends
                run_forked_worker(group, setup, folder.path, stop_requested)

            self._pool = WorkerPool.fork(folder.path, workers, work)
        elif workers > 1:
            self._pool = WorkerPool.spawn(self.folder.path, workers, data_dir, share_dataset(self.setup.runner.data))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and unlock the folder. A group that torchrun started stays open for the next run."""
        with ExitStack() as stack:  # every step happens, even if Ctrl-C interrupts another one
            stack.callback(self.folder.unlock)
            stack.callback(self.states.close)
            if self._pool is not None:
                stack.callback(self._pool.close)
                if self._group is not None:
                    stack.callback(self._group.close)
                self._pool = self._group = None

    def request_stop(self) -> None:
        """Stop the run before its next client, as a stop signal does."""
        self._stopping = True

    def _stop_requested(self) -> bool:
        return self._stopping or self._outer_stop_requested()

    @property
    def total_rounds(self) -> int:
        """The number of rounds of the whole run."""
        return self.setup.plan.rounds

    def rounds(self, executor: Executor | None = None) -> Iterator[RoundMetrics]:
        """Run the remaining rounds and write each one to the folder.

        Args:
            executor: Runs the clients. By default they train in this process and its workers.

        Yields:
            The metrics of each round, after they are written.

        Raises:
            Stopped: the user asked to stop; finished rounds are saved.
            Diverged: training diverged; the summary says so.
            WorkerFailed: a worker died, or the user's own code failed.
            WriteFailed: the folder could not be written.
        """
        try:
            self._clear_leftovers()
            executor = executor or self._make_executor()
            with self._pool.watch() if self._pool is not None else nullcontext():
                yield from self._write_rounds(executor)
            self._finish()
        except WorkerFailed as failure:
            cause = self._pool.find_cause(str(failure)) if self._pool is not None else str(failure)
            raise WorkerFailed(cause) from None
        except OSError as error:
            if find_user_code(error) is not None:
                raise to_worker_failure(error, "the run failed") from error
            raise WriteFailed(str(error)) from error
        except (Diverged, UserError, Stopped):
            raise
        except Exception as error:
            raise to_worker_failure(error, "the run failed") from error

    def _clear_leftovers(self) -> None:
        """Remove what an earlier, interrupted session wrote after the checkpoint."""
        self.folder.summary.unlink(missing_ok=True)
        self.folder.clear_leftovers()
        checkpoint.clear_after(self.folder.checkpoints, self.next_round)
        self.folder.truncate_metrics(self.next_round)
        self.folder.model.unlink(missing_ok=True)  # of a shorter run

    def _make_executor(self) -> Executor:
        if self._pool is not None:
            self._group = self._pool.connect(self._stop_requested)
            handshake.propose_run(self._group, self.setup, self.folder.path.parent)
        if self._group is None:
            return LocalExecutor(self.setup.runner, self.states, self._stop_requested)
        start = StartState(self.folder.path, self.next_round, self.server, self.states.save())
        handshake.send_start(self._group, start)
        return DistributedExecutor(self.setup.runner, self.states, self._group, self._stop_requested)

    def _write_rounds(self, executor: Executor) -> Iterator[RoundMetrics]:
        setup, settings = self.setup, self.setup.experiment.checkpoints
        saved = self.next_round
        try:
            for finished in run_rounds(setup.algorithm, executor, setup.plan, self.server, self.next_round):
                metrics = replace(finished.metrics, diagnosis=self._diagnose(finished))
                self.folder.append(metrics.to_dict())
                self.server, self.next_round = finished.server, finished.index + 1
                if self.next_round % settings.every == 0 or self.next_round == self.total_rounds:
                    self._save(settings.keep)
                    saved = self.next_round
                yield metrics
        except Stopped:
            if self.next_round > saved:
                self._save(settings.keep)
            raise
        except Diverged as reason:
            self.folder.write_summary(self._summarise("diverged") | {"reason": str(reason)})
            raise

    def _diagnose(self, finished: FinishedRound) -> Metrics | None:
        if self.diagnosis is None or not self.diagnosis.is_due(finished.index):
            return None
        plan, index = self.setup.plan, finished.index + 1
        round = Round(index, plan.schedule.client_lr_at(index), plan.schedule.server_lr, 0, plan.population, math.nan)
        try:
            return diagnose(self.setup.runner, self.states, finished.server, round, stop_requested=self._stop_requested)
        except Stopped:  # the next round stops; this one is finished
            return None
        except Exception as error:
            add_note(error, f"the diagnosis after round {finished.index} failed")
            raise

    def _save(self, keep: int) -> None:
        self.folder.flush_metrics()
        state = Checkpoint(self.next_round, self.server, self.states.save())
        checkpoint.write(self.folder.checkpoints, state, keep)

    def _finish(self) -> None:
        model = self.setup.problem.bind(self.server.params)
        tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
        self.folder.write_model({name: tensor.detach().clone() for name, tensor in tensors.items()})
        self.folder.write_summary(self._summarise("finished"))

    def _summarise(self, outcome: str) -> dict[str, Any]:
        experiment = self.setup.experiment
        return {
            "name": self.folder.name,
            "outcome": outcome,
            "algorithm": get_algorithm_name(experiment.algorithm),
            "seed": experiment.seed,
            "parameters": self.setup.problem.size,
            **summarise(self.folder.read_metrics(), experiment.evaluation.targets),
            "params_sha256": hash_params(self.server.params),
        }


def hash_settings(experiment: Experiment) -> str:
    """Return the sha256 of all settings that finished rounds depend on; a run may be made longer."""
    table = to_table(experiment)
    for key in _FREE_SETTINGS:
        del table[key]
    del table["evaluation"]["targets"]
    links = table.pop("federation")  # only the rounding of vectors changes numbers
    table |= {f"federation.{key}": links[key] for key in ("downlink", "momentum", "uplink") if links[key] != "exact"}
    text = json.dumps(table, sort_keys=True, default=str)  # a user's own model may have dates as options
    return hashlib.sha256(text.encode()).hexdigest()


def reject_unusable_name(name: str) -> None:
    """Raise a UserError if a run cannot have this name."""
    if not isinstance(name, str) or not (re.fullmatch(r"\w[\w.+=-]*", name) and len(name.encode()) <= 200):
        raise UserError(f"a run's name must be up to 200 letters, digits and . _ + = -, got {name!r}")


def make_default_name(experiment: Experiment) -> str:
    """Return the name of a run that has none: experiment, algorithm and seed."""
    words = f"{experiment.name}-{get_algorithm_name(experiment.algorithm)}-seed{experiment.seed}"
    return re.sub(r"[^\w.+=-]+", "-", words).strip("-.").lower()


def _check_workers(experiment: Experiment, fork: bool) -> None:
    reject_second_group()
    if fork and experiment.engine.device != "cpu":
        raise UserError(
            'workers of Python objects need engine.device = "cpu", because a CUDA device does not survive a fork, got '
            f"{experiment.engine.device!r}; use workers=1"
        )


def _create_folder(
    runs_dir: Path, name: str | None, experiment: Experiment, provenance: dict[str, Any], archive: Path | None
) -> RunFolder:
    text = to_toml(experiment)
    while True:
        path = runs_dir / (name or find_free_name(runs_dir, make_default_name(experiment)))
        try:
            return RunFolder.create(path, text, provenance, archive=archive)
        except RunExistsError:
            if name is not None:
                raise  # otherwise another process took the free name first


def _report_other_versions(before: dict[str, str], notify: Notify) -> None:
    for library, version in read_versions().items():
        if before.get(library) != version:
            notify(f"the run began with {library} {before.get(library)} and resumes with {version}: bits may differ")


def _reject_changes(folder: RunFolder, setup: TrainingSetup, provenance: dict[str, Any]) -> None:
    for part, digest in provenance["data_sha256"].items():
        if setup.checksums.get(part) != digest:
            raise UserError(
                f"the run {folder.name!r} must be resumed on the data that it began with, and {part!r} has another "
                "checksum; restore the old data or start a new run"
            )
    constants = setup.problem.hash_constants()
    if provenance.get("constants_sha256", constants) != constants:
        raise UserError(
            f"the run {folder.name!r} must be resumed with the frozen parameters and buffers that its model began "
            "with, and they have another checksum; restore the old ones or start a new run"
        )
