"""The processes that share a run: sums, broadcasts from rank 0, and errors that every process raises.

Nothing is pickled: tensors and text are sent as tensors of numbers.
"""

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NoReturn, final

import torch
import torch.distributed as dist
from torch import Tensor

from fedcm.errors import Diverged, Stopped, TrainingFailed, UserError, WriteFailed
from fedcm.system.error_messages import describe_failure_with_traceback

ALARM = "alarm"  # key in the store under which `raise_alarm` puts its message
_MAX_MESSAGE = 2**20  # numbers that are sent in one message
_MAX_DIMS = 16  # of a row that is gathered
_ROW_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
_POLLING = 0.01  # seconds
_TIMEOUT = timedelta(hours=12)  # a closed connection is noticed at once; a slow process is waited for


class WorkerStatus(IntEnum):
    """How a worker ended a piece of work, in increasing order of severity."""

    OK = 0
    STOPPED = 1
    DIVERGED = 2
    REJECTED = 3  # a UserError
    WRITE_FAILED = 4  # most often because the disk is full
    FAILED = 5


def to_training_failure(error: Exception, fallback: str) -> TrainingFailed:
    """Return a TrainingFailed for an unexpected error, most often one in the user's own code.

    Args:
        fallback: What failed, if the notes of the error do not say it.
    """
    return TrainingFailed(describe_failure_with_traceback(error, fallback))


def reject_second_group() -> None:
    """Raise a UserError if this process is in a process group already; torch allows one."""
    if dist.is_initialized():
        raise UserError(
            "only one training with workers can be in progress in a process; end the other one first (close its "
            "generator, if it is one of `fedcm.rounds`), or use workers=1"
        )


@final
class ProcessGroup:
    """A torch.distributed process group; every process of it calls the same methods in the same order.

    Args:
        rank: The rank of this process.
        size: The number of processes.
        store: The torch.distributed store through which the processes find each other.

    Raises:
        TrainingFailed: If the processes cannot reach each other.
    """

    def __init__(self, rank: int, size: int, store: Any) -> None:
        hook = sys.excepthook  # torch replaces it by one that writes the rank before every line, and never restores it
        try:
            dist.init_process_group(_choose_backend(size), store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
        except RuntimeError as error:
            raise TrainingFailed(f"the workers cannot reach each other ({_shorten(error)})") from None
        finally:
            sys.excepthook = hook
        self.rank, self.size = rank, size
        self._store = store

    def raise_alarm(self, message: str) -> None:
        """Report a failure at once to a process that watches the store; the others learn it at the end of the round."""
        with contextlib.suppress(RuntimeError):  # the store may be gone
            self._store.set(ALARM, message)

    def sum_(self, tensor: Tensor) -> None:
        """Sum a tensor over all processes, in place.

        The sum is exact for integers, and for floats if all but one process hold 0.
        """
        try:
            _wait(dist.all_reduce(tensor, async_op=True))
        except RuntimeError as error:
            raise TrainingFailed(f"the connection to a worker was lost ({_shorten(error)})") from None

    def agree(self, status: WorkerStatus = WorkerStatus.OK, message: str = "") -> None:
        """Wait for all processes; if one has failed, raise the most severe failure in all of them."""
        self.sum_results(status, message, torch.zeros(0, dtype=torch.float64), [])

    def sum_results(
        self, status: WorkerStatus, message: str, table: Tensor, totals: Sequence[Tensor], largest: int = 0
    ) -> int:
        """Sum the results of a round over all processes, in place, or raise the most severe failure in all of them.

        Args:
            status: How this process ended its work.
            message: Why it failed.
            table: A float64 tensor; each row is filled in by one process and 0 in the others. The bits are added as
                integers, which is exact, and in one message with the rest.
            totals: Integer tensors.
            largest: A number of which the maximum over all processes is returned.

        Returns:
            The maximum of `largest`.
        """
        encoded = message.encode()
        statuses = torch.zeros((self.size, 3), dtype=torch.int64)
        statuses[self.rank] = torch.tensor([status, len(encoded), largest])
        parts = [statuses, table.view(torch.int64)]
        are_on_cpu = all(total.device.type == "cpu" for total in totals)
        in_one_message = are_on_cpu and sum(total.numel() for total in totals) <= _MAX_MESSAGE
        self._sum_together([*parts, *totals] if in_one_message else parts)
        if int(statuses[:, 0].max()) != WorkerStatus.OK:
            self._raise_most_severe(statuses, encoded)
        if not in_one_message:
            for total in totals:
                self.sum_(total)
        return int(statuses[:, 2].max())

    def _sum_together(self, parts: list[Tensor]) -> None:
        """Sum several tensors in one message, in place: for few numbers, each message costs more than its content."""
        together = torch.cat([part.reshape(-1) for part in parts])
        self.sum_(together)
        for part, summed in zip(parts, together.split([part.numel() for part in parts]), strict=True):
            part.copy_(summed.view(part.shape))

    def _raise_most_severe(self, statuses: Tensor, encoded: bytes) -> NoReturn:
        worst = int(statuses[:, 0].max())
        rank = int((statuses[:, 0] == worst).nonzero()[0])
        _raise_error(WorkerStatus(worst), self._share_text(encoded, int(statuses[rank, 1]), rank))

    def _share_text(self, encoded: bytes, length: int, source: int = 0) -> str:
        """Return the text of the process `source`, in all processes."""
        codes = torch.zeros(length, dtype=torch.int64)
        if self.rank == source:
            codes += torch.tensor(list(encoded), dtype=torch.int64)
        self.sum_(codes)
        return bytes(codes.tolist()).decode()

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Return the tensor of rank 0; the other processes pass one of the same shape and dtype."""
        shared = tensor.contiguous().clone()
        try:
            dist.broadcast(shared, src=0)
        except RuntimeError as error:
            raise TrainingFailed(f"the connection to a worker was lost ({_shorten(error)})") from None
        return shared

    def broadcast_text(self, text: str) -> str:
        """Return the text of rank 0; the text of the other processes is ignored."""
        encoded = text.encode() if self.rank == 0 else b""
        return self._share_text(encoded, int(self.broadcast(torch.tensor(len(encoded)))))

    def broadcast_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """Return the named integer vectors of rank 0; the other processes pass None."""
        names = self.broadcast_text("\n".join(tensors) if tensors is not None else "")
        received = {}
        for name in names.split("\n") if names else ():
            size = int(self.broadcast(torch.tensor(len(tensors[name]) if tensors is not None else 0)))
            vector = tensors[name] if tensors is not None else torch.zeros(size, dtype=torch.int64)
            received[name] = self.broadcast(vector)
        return received

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _wait(work: Any) -> None:
    """Wait until a message is complete.

    Most workers end a round at almost the same time. A process that sleeps until the others are ready may wake up
    milliseconds late, as long as a whole round of a tiny model, so this one polls for a moment before it sleeps.

    Raises:
        RuntimeError: If a connection was lost.
    """
    end = time.monotonic() + _POLLING
    while not work.is_completed() and time.monotonic() < end:
        os.sched_yield()
    work.wait()


def _shorten(error: RuntimeError) -> str:
    """Return the first sentence of an error of gloo, without the position in its source.

    >>> _shorten(RuntimeError("[/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:4. Check the logs."))
    'Connection closed by peer [127.0.0.1]:4'
    """
    return re.sub(r"^\[\S+\] ", "", str(error).splitlines()[0]).partition(". ")[0]


def _choose_backend(size: int) -> str:
    """Return a backend with nccl if every process can have its own CUDA device, as nccl requires; otherwise gloo."""
    if dist.is_nccl_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE") or size):
        return "cpu:gloo,cuda:nccl"
    return "gloo"


def _raise_error(status: WorkerStatus, message: str) -> NoReturn:
    if status is WorkerStatus.STOPPED:
        raise Stopped
    if status is WorkerStatus.DIVERGED:
        raise Diverged(message)
    if status is WorkerStatus.REJECTED:
        raise UserError(message)
    if status is WorkerStatus.WRITE_FAILED:
        raise WriteFailed(message)
    raise TrainingFailed(message)


def gather_rows(group: ProcessGroup, pieces: Mapping[int, Tensor], count: int) -> Tensor:
    """Return the rows of all processes in order, in every process.

    Args:
        group: The processes.
        pieces: The rows of this process, by the index of their first row; rank 0 has those that begin at 0.
        count: The number of all rows.
    """
    header = torch.zeros(_MAX_DIMS + 2, dtype=torch.int64)
    if group.rank == 0:
        first = pieces[0]
        header[0], header[1] = _ROW_TYPES.index(first.dtype), first.dim() - 1
        header[2 : 1 + first.dim()] = torch.tensor(first.shape[1:])
    kind, dims, *shape = group.broadcast(header).tolist()
    rows = torch.zeros((count, *shape[:dims]), dtype=_ROW_TYPES[kind])
    for start, piece in pieces.items():
        rows[start : start + len(piece)] = piece
    group.sum_(rows.view(torch.int32 if rows.element_size() == 4 else torch.int64))  # bits as integers: exact
    return rows


def divide_work(steps: Any, size: int) -> list[list[int]]:
    """Divide work among processes: the longest piece first, each to the process with the least work so far.

    Args:
        steps: The steps of each piece of work.
        size: The number of processes.

    Returns:
        For each process, the positions of its pieces.

    >>> divide_work([5, 1, 1, 3], size=2)
    [[0], [3, 1, 2]]
    """
    shares: list[list[int]] = [[] for _ in range(size)]
    load = [0] * size
    for position in sorted(range(len(steps)), key=lambda k: (-int(steps[k]), k)):
        least = min(range(size), key=lambda rank: (load[rank], rank))
        shares[least].append(position)
        load[least] += int(steps[position])
    return shares
