"""The other side of a session: processes that do a worker's part of a run that rank 0 leads and writes."""

import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from pathlib import Path

from fedcm.config.experiment import read_experiment
from fedcm.core.round_loop import run_rounds
from fedcm.data.dataset import Dataset
from fedcm.errors import Diverged, Stopped, TrainingFailed, UserError, WriteFailed
from fedcm.executors.distributed import DistributedExecutor
from fedcm.executors.process_group import ProcessGroup, to_training_failure
from fedcm.runs.build import TrainingSetup, build
from fedcm.runs.folder import RunFolder
from fedcm.runs.workers import handshake
from fedcm.runs.workers.pool import join_pool, open_shared_data, record_progress
from fedcm.runs.workers.torchrun import Launch, is_launched, is_worker, join_launch
from fedcm.system.callbacks import StopRequested
from fedcm.system.memory import keep_freed_memory
from fedcm.system.signals import ignore_ctrl_c_in_fork
from fedcm.system.user_warnings import silence_warnings

OnClient = Callable[[int, int], None]

_REPORT_TIME = 5.0  # seconds: torchrun ends all processes once one has left, and rank 0 must print its error before


@contextmanager
def connect_torchrun(data_dir: Path | None, stop_requested: StopRequested) -> Iterator[Launch | None]:
    """Connect the processes that torchrun started; None without torchrun.

    On rank 0 the block runs. Every other rank works on the runs that rank 0 starts in its block, then exits here.
    """
    keep_freed_memory()
    if not is_launched():
        yield None
        return
    if is_worker():
        sys.exit(_work_for_rank_0(data_dir, stop_requested))
    launch = join_launch(stop_requested)
    try:
        yield launch
        handshake.send_end(launch.group)
    except (UserError, OSError) as error:
        with suppress(UserError, TrainingFailed):  # an error that came from a worker is known there already
            handshake.send_error(launch.group, str(error))
        raise
    finally:
        launch.group.close()


def run_pool_worker(run: Path, data_dir: Path | None, stop_requested: StopRequested) -> None:
    """In a process that a worker pool spawned: work on one run. Rank 0 reports every error."""
    keep_freed_memory()
    silence_warnings()
    group = None
    try:
        group = join_pool()
        on_client = record_progress(run, group.rank)
        _work_on_run(group, _make_builder(data_dir, open_shared_data()), stop_requested, on_client)
    except (UserError, WriteFailed, TrainingFailed):
        pass
    finally:
        if group is not None:
            group.close()


def run_forked_worker(group: ProcessGroup, setup: TrainingSetup, run: Path, stop_requested: StopRequested) -> None:
    """In a process that a worker pool forked: work on one run with the parent's objects."""
    ignore_ctrl_c_in_fork()
    silence_warnings()
    try:
        _work_on_run(group, lambda toml: setup, stop_requested, record_progress(run, group.rank))
    except (UserError, WriteFailed, TrainingFailed):
        pass
    finally:
        group.close()


def _work_for_rank_0(data_dir: Path | None, stop_requested: StopRequested) -> int:
    """Work on all runs of a command and return the exit code. Rank 0 reports every error."""
    code = _work_until_end(data_dir, stop_requested)
    deadline = time.monotonic() + _REPORT_TIME
    while code and not stop_requested() and time.monotonic() < deadline:
        time.sleep(0.05)
    return code


def _work_until_end(data_dir: Path | None, stop_requested: StopRequested) -> int:
    silence_warnings()
    group = None
    try:
        with redirect_stdout(sys.stderr):  # what a user's own code prints
            group = join_launch(stop_requested).group
            while _work_on_run(group, _make_builder(data_dir), stop_requested):
                pass
        return 0
    except UserError:
        return 2
    except Stopped:
        return 130
    except (WriteFailed, TrainingFailed):
        return 1
    finally:
        if group is not None:
            group.close()


def _make_builder(data_dir: Path | None, dataset: Dataset | None = None) -> Callable[[str], TrainingSetup]:
    return lambda toml: build(read_experiment(tomllib.loads(toml)), data_dir, data=dataset)


def _work_on_run(
    group: ProcessGroup,
    build_setup: Callable[[str], TrainingSetup],
    stop_requested: StopRequested,
    on_client: OnClient = lambda round, client: None,
) -> bool:
    """Do a worker's part of one run. Return False if no run follows."""
    setup = handshake.accept_run(group, build_setup)
    if setup is None:
        return False
    start = handshake.receive_start(group, setup)
    setup = setup.with_noise_key(start.path)
    states = setup.open_client_states(RunFolder(start.path).client_states)
    states.restore(start.client_states)
    executor = DistributedExecutor(setup.runner, states, group, stop_requested, on_client)
    try:
        with closing(states), suppress(Stopped, Diverged):  # rank 0 reports it
            rounds = run_rounds(setup.algorithm, executor, setup.plan, start.server, start.first_round, start.before)
            for _ in rounds:
                pass
    except (UserError, WriteFailed, TrainingFailed):
        raise
    except Exception as error:  # in the user's own algorithm, for example, on this rank alone
        failure = to_training_failure(error, "the run failed")
        group.raise_alarm(f"worker {group.rank}: {failure}")
        raise failure from error
    return True
