"""The processes that torchrun started, on one machine or many: how they find each other, and know each other again.

torchrun keeps one store for all attempts of a job, and what an attempt that died wrote there stays. So the first
process gives every attempt a name of its own, under which its members meet; and a job has one name in the store for as
long as torchrun lives, by which the first process finds the run that it began before a restart. Counts of restarts
would not do: they differ between machines.
"""

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from fedcm.errors import Stopped, WorkerFailed
from fedcm.executors.process_group import ProcessGroup

_VARIABLES = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_START = timedelta(minutes=5)

Asked = Callable[[], bool]


@final
@dataclass(frozen=True)
class Launch:
    group: ProcessGroup
    job: str  # the same after a restart, another one in every torchrun


def launched() -> bool:
    return all(name in os.environ for name in _VARIABLES)


def follows() -> bool:
    """Is this one of the processes that another one leads?"""
    return launched() and _number("RANK") > 0


def join(stop_requested: Asked) -> Launch:
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if size == _number("LOCAL_WORLD_SIZE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all here: a name that leads elsewhere need not be asked
    try:
        store = _store(rank, size)
        job = store.compare_set("fedcm/job", "", secrets.token_hex(16)).decode()
        attempt = _gather(store, size, stop_requested) if rank == 0 else _find(store, rank, stop_requested)
    except RuntimeError as error:
        if isinstance(error, WorkerFailed):
            raise
        raise WorkerFailed(f"torchrun's store cannot be reached ({str(error).splitlines()[0]})") from None
    return Launch(ProcessGroup(rank, size, PrefixStore(attempt, store)), job)


def _store(rank: int, size: int) -> TCPStore:
    theirs = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        os.environ["MASTER_ADDR"],
        _number("MASTER_PORT"),
        size,
        is_master=rank == 0 and not theirs,
        timeout=_START,
        wait_for_workers=False,
        multi_tenant=not theirs,
    )


def _gather(store: Any, size: int, stop_requested: Asked) -> str:
    """The first process's: answers whoever asks, members of dead attempts too, until all of this one have come."""
    attempt = f"fedcm/attempt/{secrets.token_hex(16)}"
    missing = set(range(1, size))

    def all_here() -> bool:
        for rank in list(missing):
            if store.check([f"{attempt}/here/{rank}"]):
                missing.remove(rank)
            elif store.check([_asks(rank)]):
                store.set(_answer(store.get(_asks(rank)).decode()), attempt)
        return not missing

    _wait_until(all_here, stop_requested)
    return attempt


def _find(store: Any, rank: int, stop_requested: Asked) -> str:
    """The others': the answer to a question that was never asked before is of the attempt that is alive."""
    question = secrets.token_hex(16)
    store.set(_asks(rank), question)
    _wait_until(lambda: store.check([_answer(question)]), stop_requested)
    attempt = store.get(_answer(question)).decode()
    store.set(f"{attempt}/here/{rank}", "")
    return attempt


def _asks(rank: int) -> str:
    return f"fedcm/asks/{rank}"


def _answer(question: str) -> str:
    return f"fedcm/answer/{question}"


def _wait_until(true: Callable[[], bool], stop_requested: Asked) -> None:
    deadline = time.monotonic() + _START.total_seconds()
    while not true():
        if stop_requested():
            raise Stopped
        if time.monotonic() > deadline:
            raise WorkerFailed(f"not all of torchrun's processes came within {_START}")
        time.sleep(0.02)


def _number(name: str) -> int:
    return int(os.environ[name])
