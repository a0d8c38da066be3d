"""The workers of a run on this machine: rank 0 starts them, they share every round, and they end with it."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, Protocol, Self, final

import torch
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from fedcm.data.dataset import Dataset
from fedcm.data.shared_memory import Descriptors, close_descriptors, open_shared_dataset
from fedcm.errors import Stopped, TrainingFailed
from fedcm.executors.process_group import ALARM, ProcessGroup, reject_second_group
from fedcm.system.callbacks import StopRequested
from fedcm.system.processes import call_on_parent_exit, describe_exit, make_child_environment, watch_parent

_PORT, _RANK, _SIZE = "FEDCM_PORT", "FEDCM_RANK", "FEDCM_SIZE"
_DATA = "FEDCM_SHARED_DATA"
_CONNECT_TIMEOUT = timedelta(minutes=5)
_WAKE = signal.SIGUSR1


class WorkerProcess(Protocol):
    """A started worker: the part of `subprocess.Popen` that a pool uses, which forked workers have too.

    Attributes:
        returncode: The exit code; None as long as the process runs, and negative after a signal.
    """

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code; None if the process still runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit code."""
        ...

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        ...


@final
class WorkerPool:
    """The worker processes of one run; the process that made the pool is rank 0."""

    def __init__(self, run: Path, size: int, store: TCPStore, workers: Mapping[int, WorkerProcess]) -> None:
        """For `spawn` and `fork`."""
        self.run = run
        self.size = size
        self._store = store
        self._workers = workers
        self._cause = ""  # why the run cannot continue, once that is known
        self._connected = False

    @classmethod
    def spawn(cls, run: Path, size: int, data_dir: Path | None, data: Descriptors = ()) -> Self:
        """Start workers as new processes, which build the experiment for themselves.

        Args:
            run: The run's folder.
            size: The number of processes, this one included.
            data_dir: Folder of prepared datasets.
            data: Descriptors of the data in shared memory. The workers inherit them; they are closed here.

        Raises:
            UserError: If this process is in a group already.
        """
        reject_second_group()
        store = _make_store(size)
        command = [sys.executable, "-m", "fedcm", "worker", str(run)]
        command += [] if data_dir is None else ["--data-dir", str(data_dir)]
        workers = {
            rank: subprocess.Popen(
                command,
                env=_make_environment(rank, size, store.port) | {_DATA: str(data[0]) if data else ""},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                pass_fds=data,
            )
            for rank in range(1, size)
        }
        close_descriptors(data)
        return cls(run, size, store, workers)

    @classmethod
    def fork(cls, run: Path, size: int, work: Callable[[ProcessGroup], None]) -> Self:
        """Start workers as forks of this process, which share its Python objects.

        Args:
            run: The run's folder.
            size: The number of processes, this one included.
            work: Does a worker's part of the run, given its process group.

        Raises:
            UserError: If this process is in a group already.
        """
        reject_second_group()
        store = _make_store(size)

        def connect_and_work(rank: int) -> None:
            torch.set_num_threads(1)
            work(_connect(rank, size, store.port))

        workers = {rank: _ForkedProcess(lambda rank=rank: connect_and_work(rank)) for rank in range(1, size)}
        return cls(run, size, store, workers)

    def connect(self, stop_requested: StopRequested = lambda: False) -> ProcessGroup:
        """Wait for all workers and return the process group.

        Raises:
            Stopped: If the user asked to stop before all workers were connected.
            TrainingFailed: If a worker died before it was connected.
        """
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        while self._store.add("here", 0) < self.size - 1:
            for rank, worker in self._workers.items():
                if (code := worker.poll()) is not None:
                    raise TrainingFailed(f"worker {rank} {describe_exit(code)} before the first round")
            if stop_requested():
                raise Stopped
            time.sleep(0.01)
        group = ProcessGroup(0, self.size, self._store)
        self._connected = True
        return group

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Raise TrainingFailed in the block within a second after a worker fails, even in the middle of a round."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals reach the main thread only; the end of the round notices the failure too
            return
        before, stopped = signal.signal(_WAKE, self._raise), threading.Event()
        watcher = threading.Thread(target=self._watch_workers, args=(stopped,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stopped.set()
            try:
                watcher.join()  # the signal may arrive here
            finally:
                signal.signal(_WAKE, before)

    def find_cause(self, default: str) -> str:
        """Return why a worker failed, or `default` if that does not become known."""
        deadline, ended = time.monotonic() + 5, False
        while not self._cause and not ended and time.monotonic() < deadline:
            ended = all(worker.poll() is not None for worker in self._workers.values())
            self._cause = self._read_alarm() or self._describe_dead_worker()
            time.sleep(0.02)
        return self._cause or default

    def close(self) -> None:
        """Wait for the workers, which end when rank 0 leaves the group; kill those that do not."""
        deadline = time.monotonic() + (10 if self._connected and not self._cause else 0)
        try:
            for worker in self._workers.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(timeout=max(deadline - time.monotonic(), 0.1))
        finally:  # also after Ctrl-C
            for worker in self._workers.values():
                worker.kill()
                worker.wait()
        for rank in self._workers:
            with contextlib.suppress(OSError):
                _get_progress_file(self.run, rank).unlink()

    def _watch_workers(self, stopped: threading.Event) -> None:
        while not stopped.wait(0.2):
            self._cause = self._read_alarm() or self._describe_dead_worker()
            if self._cause:
                break
        if self._cause and not stopped.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, _WAKE)
            if not stopped.wait(3):  # rank 0 waits for the others in a sum, which ends when they do
                for worker in self._workers.values():
                    worker.kill()

    def _raise(self, *_: object) -> None:
        raise TrainingFailed(self._cause)

    def _describe_dead_worker(self) -> str:
        for rank, worker in self._workers.items():
            if (code := worker.poll()) not in (None, 0):
                return f"worker {rank} {describe_exit(code)}{_describe_progress(self.run, rank)}"
        return ""

    def _read_alarm(self) -> str:
        """The error that a worker reported before the end of the round."""
        return self._store.get(ALARM).decode() if self._store.check([ALARM]) else ""


def join_pool() -> ProcessGroup:
    """In a spawned worker: connect to rank 0."""
    rank, size, port = (int(os.environ[name]) for name in (_RANK, _SIZE, _PORT))
    call_on_parent_exit(
        lambda: os._exit(1)
    )  # also in the middle of a client; the group notices it after the round only
    return _connect(rank, size, port)


def open_shared_data() -> Dataset | None:
    """In a spawned worker: open the data that rank 0 shares; None if it shares none."""
    contents = os.environ.get(_DATA)
    return open_shared_dataset(int(contents)) if contents else None


def record_progress(run: Path, rank: int) -> Callable[[int, int], None]:
    """Return a function that writes which client a worker trains, for the error message if the worker dies."""
    file = os.open(_get_progress_file(run, rank), os.O_WRONLY | os.O_CREAT, 0o644)

    def record(round: int, client: int) -> None:
        os.pwrite(file, f"client {client} in round {round}".ljust(64).encode(), 0)  # one write, never half of it

    return record


@final
class _ForkedProcess:
    """A fork of this process that runs a function and exits. It ends when this process does."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.returncode: int | None = None
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        # a fork must not collect garbage of this process: an old process group would wait for threads that do not exist
        gc.freeze()
        try:
            self.pid = os.fork()
        finally:
            if os.getpid() == parent:
                gc.unfreeze()
        if self.pid == 0:
            watch_parent(parent, lambda: os._exit(1))
            _run_and_exit(work)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked worker", timeout or 0.0)
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _run_and_exit(work: Callable[[], None]) -> NoReturn:
    """In a fork: never return into the code of the parent."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _make_store(size: int) -> TCPStore:
    return TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False, timeout=_CONNECT_TIMEOUT)


def _connect(rank: int, size: int, port: int) -> ProcessGroup:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = TCPStore("127.0.0.1", port, size, is_master=False, timeout=_CONNECT_TIMEOUT)
    store.add("here", 1)
    return ProcessGroup(rank, size, store)


def _describe_progress(run: Path, rank: int) -> str:
    try:
        client = _get_progress_file(run, rank).read_text().strip()
    except OSError:
        return ""
    return f" while it trained {client}" if client else ""


def _get_progress_file(run: Path, rank: int) -> Path:
    return run / f".worker-{rank}"


def _make_environment(rank: int, size: int, port: int) -> dict[str, str]:
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    numbers = {_PORT: port, _RANK: rank, _SIZE: size}
    return os.environ | one_thread | make_child_environment() | {name: str(number) for name, number in numbers.items()}
