"""Connect the processes that torchrun started, on one machine or many, also after torchrun restarted them.

torchrun keeps one store for all attempts of a job. Entries of an attempt that died stay in the store, so rank 0 gives
every attempt a random name, and the processes of the attempt meet under this name. The number of restarts cannot be the
name, because machines can count differently. The job has a random name too, which is the same in all attempts. After a
restart, rank 0 finds the run that it started before by the name of the job.
"""

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from fedcm.errors import Stopped, TrainingFailed
from fedcm.executors.process_group import ProcessGroup
from fedcm.system.callbacks import StopRequested

_VARIABLES = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_CONNECT_TIMEOUT = timedelta(minutes=5)


@final
@dataclass(frozen=True)
class Launch:
    """The processes of one torchrun attempt.

    Attributes:
        group: The process group.
        job: The name of the job: equal after a restart, different for every torchrun.
    """

    group: ProcessGroup
    job: str


def is_launched() -> bool:
    """Return whether torchrun started this process."""
    return all(name in os.environ for name in _VARIABLES)


def is_worker() -> bool:
    """Return whether torchrun started this process and it is not rank 0."""
    return is_launched() and _read_number("RANK") > 0


def join_launch(stop_requested: StopRequested) -> Launch:
    """Connect to the other processes of this torchrun attempt.

    Raises:
        Stopped: If the user asked to stop before all processes were connected.
        TrainingFailed: If the store cannot be reached, or some processes did not connect in time.
    """
    rank, size = _read_number("RANK"), _read_number("WORLD_SIZE")
    if size == _read_number("LOCAL_WORLD_SIZE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all are on this machine: no host name must resolve
    try:
        store = _open_store(rank, size)
        job = store.compare_set("fedcm/job", "", secrets.token_hex(16)).decode()
        if rank == 0:
            attempt = _wait_for_workers(store, size, stop_requested)
        else:
            attempt = _find_attempt(store, rank, stop_requested)
    except RuntimeError as error:
        if isinstance(error, TrainingFailed):
            raise
        raise TrainingFailed(f"torchrun's store cannot be reached ({str(error).splitlines()[0]})") from None
    return Launch(ProcessGroup(rank, size, PrefixStore(attempt, store)), job)


def _open_store(rank: int, size: int) -> TCPStore:
    agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        os.environ["MASTER_ADDR"],
        _read_number("MASTER_PORT"),
        size,
        is_master=rank == 0 and not agent_store,
        timeout=_CONNECT_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=not agent_store,
    )


def _wait_for_workers(store: Any, size: int, stop_requested: StopRequested) -> str:
    """On rank 0: answer every process that asks, also of dead attempts, until all of this attempt are connected."""
    attempt = f"fedcm/attempt/{secrets.token_hex(16)}"
    missing = set(range(1, size))

    def are_all_connected() -> bool:
        for rank in list(missing):
            if store.check([f"{attempt}/here/{rank}"]):
                missing.remove(rank)
            elif store.check([_make_question_key(rank)]):
                store.set(_make_answer_key(store.get(_make_question_key(rank)).decode()), attempt)
        return not missing

    _wait_until(are_all_connected, stop_requested)
    return attempt


def _find_attempt(store: Any, rank: int, stop_requested: StopRequested) -> str:
    """On a worker: ask under a new name; only an attempt that is alive answers."""
    question = secrets.token_hex(16)
    store.set(_make_question_key(rank), question)
    _wait_until(lambda: store.check([_make_answer_key(question)]), stop_requested)
    attempt = store.get(_make_answer_key(question)).decode()
    store.set(f"{attempt}/here/{rank}", "")
    return attempt


def _make_question_key(rank: int) -> str:
    return f"fedcm/asks/{rank}"


def _make_answer_key(question: str) -> str:
    return f"fedcm/answer/{question}"


def _wait_until(condition: Callable[[], bool], stop_requested: StopRequested) -> None:
    deadline = time.monotonic() + _CONNECT_TIMEOUT.total_seconds()
    while not condition():
        if stop_requested():
            raise Stopped
        if time.monotonic() > deadline:
            raise TrainingFailed(f"not all of torchrun's processes connected within {_CONNECT_TIMEOUT}")
        time.sleep(0.02)


def _read_number(name: str) -> int:
    return int(os.environ[name])
