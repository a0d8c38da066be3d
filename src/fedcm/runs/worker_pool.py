"""The other processes of a run on this machine: started by the first, sharing every round, ending with it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import final

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from fedcm.data.dataset import Dataset
from fedcm.data.shared import Descriptors, close_shared, open_shared
from fedcm.errors import WorkerFailed
from fedcm.executors.process_group import ALARM, ProcessGroup
from fedcm.system.processes import child_environment, on_parent_exit

_PORT, _RANK, _SIZE = "FEDCM_PORT", "FEDCM_RANK", "FEDCM_SIZE"
_DATA = "FEDCM_SHARED_DATA"
_START = timedelta(minutes=5)
_WAKE = signal.SIGUSR1


@final
class WorkerPool:
    """`size` processes in all, this one included."""

    def __init__(self, run: Path, size: int, data_dir: Path | None, data: Descriptors = ()) -> None:
        """`data` are the descriptors of the data in shared memory; the workers inherit them, and here they close."""
        self.run = run
        self._store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False, timeout=_START)
        words = [sys.executable, "-m", "fedcm", "follow", str(run)]
        words += [] if data_dir is None else ["--data-dir", str(data_dir)]
        self._workers = {
            rank: subprocess.Popen(
                words,
                env=_environment(rank, size, self._store.port) | {_DATA: str(data[0]) if data else ""},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                pass_fds=data,
            )
            for rank in range(1, size)
        }
        close_shared(data)
        self.size = size
        self._cause = ""  # why the run cannot go on, once that is known

    def gather(self) -> ProcessGroup:
        """Waits for all; one that dies on the way is told."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        while self._store.add("here", 0) < self.size - 1:
            self._reject_dead()
            time.sleep(0.01)
        return ProcessGroup(0, self.size, self._store)

    def _reject_dead(self) -> None:
        for rank, worker in self._workers.items():
            if worker.poll() is not None:
                raise WorkerFailed(f"worker {rank} {_ending(worker.returncode)} before the first round")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, a worker that cannot go on is told within a second, in the middle of this process's own clients."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals reach the main thread alone; the end of the round tells it too
            return
        before, over = signal.signal(_WAKE, self._raise), threading.Event()
        watcher = threading.Thread(target=self._look, args=(over,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            signal.signal(_WAKE, before)

    def _look(self, over: threading.Event) -> None:
        while not over.wait(0.2):
            self._cause = self._alarm() or self._dead()
            if self._cause:
                break
        if self._cause and not over.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, _WAKE)
            if not over.wait(3):  # it waits for the others in the sum, which ends when they do
                for worker in self._workers.values():
                    worker.kill()

    def _raise(self, *_: object) -> None:
        raise WorkerFailed(self._cause)

    def _dead(self) -> str:
        for rank, worker in self._workers.items():
            if worker.poll() not in (None, 0):
                return f"worker {rank} {_ending(worker.returncode)}{at_work(self.run, rank)}"
        return ""

    def _alarm(self) -> str:
        """What a worker that is still there has said."""
        return self._store.get(ALARM).decode() if self._store.check([ALARM]) else ""

    def why(self, otherwise: str) -> str:
        """What is known of a worker that is no longer there."""
        deadline = time.monotonic() + 5
        while not self._cause and time.monotonic() < deadline:
            self._cause = self._alarm() or self._dead()
            time.sleep(0.02)
        return self._cause or otherwise

    def dismiss(self) -> None:
        """They end by themselves when this process leaves the group; who does not is made to."""
        until = time.monotonic() + (0 if self._cause else 10)
        for worker in self._workers.values():
            try:
                worker.wait(timeout=max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        for rank in self._workers:
            with contextlib.suppress(OSError):
                _note(self.run, rank).unlink()


def join() -> ProcessGroup:
    """In a worker that a crew started: the group that it belongs to."""
    rank, size, port = (int(os.environ[name]) for name in (_RANK, _SIZE, _PORT))
    # in the middle of a client too, which the group would notice only at the end of the round
    on_parent_exit(lambda: os._exit(1))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = TCPStore("127.0.0.1", port, size, is_master=False, timeout=_START)
    store.add("here", 1)
    return ProcessGroup(rank, size, store)


def given_data() -> Dataset | None:
    """In a worker: the data that the first process shares, if it does."""
    contents = os.environ.get(_DATA)
    return open_shared(int(contents)) if contents else None


def noting(run: Path, rank: int) -> Callable[[int, int], None]:
    """Writes down which client a worker is at, for whoever finds it dead."""
    file = os.open(_note(run, rank), os.O_WRONLY | os.O_CREAT, 0o644)

    def note(round: int, client: int) -> None:
        os.pwrite(file, f"client {client} in round {round}".ljust(64).encode(), 0)  # at once, never half

    return note


def at_work(run: Path, rank: int) -> str:
    try:
        said = _note(run, rank).read_text().strip()
    except OSError:
        return ""
    return f" while it trained {said}" if said else ""


def _note(run: Path, rank: int) -> Path:
    return run / f".worker-{rank}"


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"left with code {code}"


def _environment(rank: int, size: int, port: int) -> dict[str, str]:
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    numbers = {_PORT: port, _RANK: rank, _SIZE: size}
    return os.environ | one_thread | child_environment() | {name: str(number) for name, number in numbers.items()}
