"""The processes that share a run: they add up, agree on trouble, and pass on what the first one knows.

Nothing is pickled: tensors and text go as tensors of numbers.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from enum import IntEnum
from typing import Any, NoReturn, final

import torch
import torch.distributed as dist
from torch import Tensor

from fedcm.errors import Diverged, Stopped, UserError, WorkerFailed, WriteFailed
from fedcm.system.faults import describe_with_trace

ALARM = "alarm"  # the key in the store of a trouble that somebody may be watching for
_SMALL = 2**20  # numbers that go in one message
_PATIENCE = timedelta(hours=12)  # a connection that closes is noticed at once; a process that is slow is waited for


class Trouble(IntEnum):
    NONE = 0
    STOPPED = 1
    DIVERGED = 2
    REFUSED = 3
    UNWRITTEN = 4  # a full disk, most often
    FAILED = 5  # the gravest is told


def to_worker_failure(error: Exception, otherwise: str) -> WorkerFailed:
    """Of an error in a user's own code most often; `otherwise` says what failed, where the error does not know."""
    return WorkerFailed(describe_with_trace(error, otherwise))


@final
class ProcessGroup:
    def __init__(self, rank: int, size: int, store: Any) -> None:
        try:
            dist.init_process_group(_backend(size), store=store, rank=rank, world_size=size, timeout=_PATIENCE)
        except RuntimeError as error:
            raise WorkerFailed(f"the workers cannot reach each other ({_in_short(error)})") from None
        self.rank, self.size = rank, size
        self._store = store

    def alarm(self, said: str) -> None:
        """For whoever watches: a trouble that all hear of at the end of the round anyway."""
        with contextlib.suppress(RuntimeError):  # nobody is there to watch
            self._store.set(ALARM, said)

    def sum_(self, tensor: Tensor) -> None:
        """In place, over all processes; exact for integers, and for floats where all but one process hold 0."""
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            raise WorkerFailed(f"a worker is no longer there ({_in_short(error)})") from None

    def agree(self, trouble: Trouble = Trouble.NONE, said: str = "") -> None:
        """All come here, and the gravest trouble of any is raised in all."""
        self.add_up(trouble, said, torch.zeros(0, dtype=torch.float64), [])

    def add_up(self, trouble: Trouble, said: str, facts: Tensor, totals: list[Tensor], largest: int = 0) -> int:
        """Once a round: the gravest trouble of any process is raised in all; without any, facts and totals are summed.
        Returns the greatest `largest` of any process.

        `facts` are float64 with every row filled in by one process and 0 in the others: as the integers that their bits
        are, they add up exactly, and go with the rest in one message.
        """
        message = said.encode()
        board = torch.zeros((self.size, 3), dtype=torch.int64)
        board[self.rank] = torch.tensor([trouble, len(message), largest])
        parts = [board, facts.view(torch.int64)]
        small = sum(total.numel() for total in totals) <= _SMALL and all(total.device.type == "cpu" for total in totals)
        self._sum_together([*parts, *totals] if small else parts)
        if int(board[:, 0].max()) != Trouble.NONE:
            self._tell(board, message)
        if not small:
            for total in totals:
                self.sum_(total)
        return int(board[:, 2].max())

    def _sum_together(self, parts: list[Tensor]) -> None:
        """In place; a message costs more than the numbers in it, where they are few."""
        together = torch.cat([part.reshape(-1) for part in parts])
        self.sum_(together)
        for part, summed in zip(parts, together.split([part.numel() for part in parts]), strict=True):
            part.copy_(summed.view(part.shape))

    def _tell(self, board: Tensor, message: bytes) -> NoReturn:
        worst = int(board[:, 0].max())
        teller = int((board[:, 0] == worst).nonzero()[0])
        _raise(Trouble(worst), self.text(message, int(board[teller, 1]), teller))

    def text(self, message: bytes, length: int, teller: int = 0) -> str:
        """The teller's message, in all processes."""
        letters = torch.zeros(length, dtype=torch.int64)
        if self.rank == teller:
            letters += torch.tensor(list(message), dtype=torch.int64)
        self.sum_(letters)
        return bytes(letters.tolist()).decode()

    def from_first(self, tensor: Tensor) -> Tensor:
        """The first process's tensor, in all; the others give one of the same shape and dtype."""
        shared = tensor.contiguous().clone()
        try:
            dist.broadcast(shared, src=0)
        except RuntimeError as error:
            raise WorkerFailed(f"a worker is no longer there ({_in_short(error)})") from None
        return shared

    def text_from_first(self, text: str) -> str:
        """The first process's text, in all; what the others give does not count."""
        message = text.encode() if self.rank == 0 else b""
        return self.text(message, int(self.from_first(torch.tensor(len(message)))))

    def tensors_from_first(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """The first process's integer vectors by name; the others give None."""
        names = self.text_from_first("\n".join(tensors) if tensors is not None else "")
        found = {}
        for name in names.split("\n") if names else ():
            size = int(self.from_first(torch.tensor(len(tensors[name]) if tensors is not None else 0)))
            vector = tensors[name] if tensors is not None else torch.zeros(size, dtype=torch.int64)
            found[name] = self.from_first(vector)
        return found

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


def _in_short(error: RuntimeError) -> str:
    """gloo's first sentence, without the place in its source.

    >>> _in_short(RuntimeError("[/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:4. Check the logs."))
    'Connection closed by peer [127.0.0.1]:4'
    """
    return re.sub(r"^\[\S+\] ", "", str(error).splitlines()[0]).partition(". ")[0]


def _backend(size: int) -> str:
    """nccl where every process can have a CUDA device of its own, which nccl asks for; gloo for all else."""
    if dist.is_nccl_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE") or size):
        return "cpu:gloo,cuda:nccl"
    return "gloo"


def _raise(trouble: Trouble, said: str) -> NoReturn:
    if trouble is Trouble.STOPPED:
        raise Stopped
    if trouble is Trouble.DIVERGED:
        raise Diverged(said)
    if trouble is Trouble.REFUSED:
        raise UserError(said)
    if trouble is Trouble.UNWRITTEN:
        raise WriteFailed(said)
    raise WorkerFailed(said)


def divide_work(steps: Any, size: int) -> list[list[int]]:
    """Who does which of the cohort's positions: the longest first, each to whoever has least; a pure function.

    >>> shares([5, 1, 1, 3], size=2)
    [[0], [3, 1, 2]]
    """
    mine: list[list[int]] = [[] for _ in range(size)]
    load = [0] * size
    for position in sorted(range(len(steps)), key=lambda k: (-int(steps[k]), k)):
        least = min(range(size), key=lambda rank: (load[rank], rank))
        mine[least].append(position)
        load[least] += int(steps[position])
    return mine
