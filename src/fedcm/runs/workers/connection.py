"""Rank 0's connection to its workers: start them, hand them a run, watch them, end them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, final

from fedcm.config.experiment import to_table
from fedcm.config.sections import Experiment
from fedcm.core.executor import Executor
from fedcm.core.participation import FixedSize
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.stopping import Line
from fedcm.data.shared_memory import share_dataset
from fedcm.errors import TrainingFailed, UserError
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.distributed import DistributedExecutor
from fedcm.executors.local import LocalExecutor
from fedcm.executors.process_group import ProcessGroup, reject_second_group
from fedcm.runs.build import TrainingSetup
from fedcm.runs.workers import handshake
from fedcm.runs.workers.handshake import StartState
from fedcm.runs.workers.pool import WorkerPool
from fedcm.runs.workers.torchrun import Launch
from fedcm.runs.workers.worker import run_forked_worker
from fedcm.system.callbacks import StopRequested
from fedcm.system.formatting import format_count
from fedcm.system.hardware import count_default_workers
from fedcm.system.imports import iterate_code
from fedcm.system.processes import is_fork_safe
from fedcm.system.user_warnings import ManyWorkersWarning, warn_user


@final
class Workers:
    """The processes that share a run with this one, which is rank 0.

    There are three kinds: none, a pool of processes on this machine, and the processes of torchrun. Use it in a `with`
    block, or call `close`.

    Args:
        pool: Processes on this machine that this object started.
        group: The connected processes of torchrun.
    """

    def __init__(self, pool: WorkerPool | None = None, group: ProcessGroup | None = None) -> None:
        self._pool = pool
        self._group = group

    @classmethod
    def spawn(cls, run: Path, count: int, setup: TrainingSetup, data_dir: Path | None) -> Self:
        """Start new processes, which build the experiment for themselves and share the data's memory.

        Args:
            run: The run's folder.
            count: The number of processes, this one included; 1 starts none.
            setup: The objects that train.
            data_dir: Folder of prepared datasets.
        """
        return cls(WorkerPool.spawn(run, count, data_dir, share_dataset(setup.runner.data)) if count > 1 else None)

    @classmethod
    def fork(
        cls,
        run: Path,
        count: int,
        setup: TrainingSetup,
        stop_requested: StopRequested,
        on_fork: Callable[[], None] = lambda: None,
    ) -> Self:
        """Start forks of this process, which share its Python objects.

        Args:
            run: The run's folder.
            count: The number of processes, this one included; 1 starts none.
            setup: The objects that train.
            stop_requested: Called before every client; the worker stops when it returns True.
            on_fork: Called first in every fork.
        """

        def work(group: ProcessGroup) -> None:
            on_fork()
            run_forked_worker(group, setup, run, stop_requested)

        return cls(WorkerPool.fork(run, count, work) if count > 1 else None)

    @classmethod
    def join(cls, launch: Launch) -> Self:
        """Use the processes of torchrun, which have accepted the run already."""
        return cls(group=launch.group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End a pool. The processes of torchrun stay connected for the next run."""
        with ExitStack() as stack:  # every step happens, even if Ctrl-C interrupts another one
            if self._pool is not None:
                stack.callback(self._pool.close)
                if self._group is not None:
                    stack.callback(self._group.close)
                self._pool = self._group = None

    def make_executor(
        self,
        run: Path,
        setup: TrainingSetup,
        states: ClientStatesInFile,
        server: Any,
        next_round: int,
        stop_requested: StopRequested,
        before: Iterable[Line] = (),
    ) -> Executor:
        """Connect to the workers, send them the state of the run, and return the executor of its rounds.

        Args:
            run: The run's folder.
            setup: The objects that train.
            states: The client states, in a file that all workers share.
            server: The algorithm's server state.
            next_round: The first round to run.
            stop_requested: Called before every client; the round stops when it returns True.
            before: The metrics of the rounds before `next_round`.

        Raises:
            UserError: If a worker cannot take part in the run.
            Stopped: If the user asked to stop before all workers were connected.
            TrainingFailed: If a worker died.
        """
        with self._find_causes():
            if self._pool is not None:
                self._group = self._pool.connect(stop_requested)
                handshake.propose_run(self._group, setup, run.parent)
            if self._group is None:
                return LocalExecutor(setup.runner, states, stop_requested)
            lines = setup.plan.select_watched(before)
            handshake.send_start(self._group, StartState(run, next_round, server, states.save(), lines))
            return DistributedExecutor(setup.runner, states, self._group, stop_requested)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Raise TrainingFailed in the block soon after a worker fails. The message says why the worker failed."""
        with self._find_causes():
            if self._pool is None:
                yield
            else:
                with self._pool.watch():
                    yield

    @contextmanager
    def _find_causes(self) -> Iterator[None]:
        """Replace the message of a TrainingFailed by the worker's own error or the way it died."""
        try:
            yield
        except TrainingFailed as failure:
            cause = str(failure) if self._pool is None else self._pool.find_cause(str(failure))
            raise TrainingFailed(cause) from None


def limit_workers(count: int, plan: TrainingPlan, device: str) -> int:
    """Return how many workers to start: not more than the largest cohort, unless the machine has cores for them.

    More would only wait for each other. The bits do not depend on it.
    """
    fixed = plan.participation.clients if isinstance(plan.participation, FixedSize) else plan.population
    useful = max(min(fixed, plan.population), count_default_workers(device))
    if count <= useful:
        return count
    warn_user(
        f"{count} workers are more than can share a round, which has at most "
        f"{format_count(min(fixed, plan.population), 'client')}; {useful} are used",
        ManyWorkersWarning,
    )
    return useful


def can_fork(experiment: Experiment) -> bool:
    """Return whether workers can be forks of this process: they start at once and share its memory.

    CUDA and compiled models do not survive a fork. Other threads of this process might hold locks that a fork would
    wait for, and the libraries that read the user's data often have threads that Python cannot see.
    """
    engine = experiment.engine
    return (
        is_fork_safe()
        and engine.device == "cpu"
        and engine.compile == "off"
        and threading.active_count() == 1
        and all(path.startswith(("model.", "algorithm.")) for path, _ in iterate_code(to_table(experiment)))
    )


def check_workers(experiment: Experiment, *, fork: bool) -> None:
    """Raise a UserError if this process cannot start workers, before anything is built."""
    reject_second_group()
    if fork and experiment.engine.device != "cpu":
        raise UserError(
            'workers of Python objects need engine.device = "cpu", because a CUDA device does not survive a fork, got '
            f"{experiment.engine.device!r}; use workers=1"
        )
