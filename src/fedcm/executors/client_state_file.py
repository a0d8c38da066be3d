"""What clients keep, in one file that the workers of a machine share: the system's memory while it has some, then disk.

Every state has a slot of the file. A new state goes to a free slot, never over the old one, and the table of who has
which slot changes when the whole round is done: so a crash at any moment leaves the states that a checkpoint's table
names as they were. A checkpoint is that table alone, with a checksum a slot. Which slots are free follows from the
cohorts, which every process knows, so no process has to ask another. A slot given up is used again when no checkpoint
that is kept can still name it.
"""

import itertools
import os
import zlib
from collections import deque
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, Vector, messages

_CLIENTS, _SLOTS, _CHECKSUMS, _NAMED = "@clients", "@slots", "@checksums", "@named"


@final
class ClientStatesInFile:
    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any, Any],
        params: Vector,
        path: Path,
        rounds_named: int,
        rounded: torch.dtype | None = None,
    ) -> None:
        """`rounds_named` is for how many rounds a kept checkpoint may still name a slot that was given up; states are
        stored as they are, or rounded to a smaller type."""
        self._kind = messages(type(algorithm)).kept
        self._unseen = algorithm.init_client(params)
        self._stored = [rounded or field.dtype for field in self._unseen]
        self._lengths = [
            field.numel() * dtype.itemsize for field, dtype in zip(self._unseen, self._stored, strict=True)
        ]
        self._bytes = sum(self._lengths)
        self._path = path
        self._rounds_named = rounds_named
        self._slot_of: dict[int, int] = {}
        self._checksum_of: dict[int, int] = {}
        self._given_up: deque[tuple[int, int]] = deque()  # (round, slot), oldest first
        self._free: deque[int] = deque()
        self._slots = 0  # in the file so far
        self._next: dict[int, int] = {}
        self._round = 0
        if self._bytes:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        self._round = round
        self._next = {}
        if not self._bytes:
            return
        while self._given_up and self._given_up[0][0] + self._rounds_named <= round:
            self._free.append(self._given_up.popleft()[1])
        free = list(itertools.islice(self._free, len(cohort)))
        for position, client in enumerate(cohort.tolist()):
            fresh = self._slots + position - len(free)
            self._next[client] = free[position] if position < len(free) else fresh

    def get(self, client: int) -> Any:
        if client not in self._slot_of:
            return self._unseen
        raw = torch.empty(self._bytes, dtype=torch.uint8)
        whole = _read(self._file, raw.numpy().data, self._slot_of[client] * self._bytes)
        if not whole or zlib.crc32(raw.numpy().data) != self._checksum_of[client]:
            raise OSError(f"what client {client} keeps is damaged in {self._path}")
        fields = zip(raw.split(self._lengths), self._stored, self._unseen, strict=True)
        return self._kind(*[part.view(dtype).to(like) for part, dtype, like in fields])

    def put(self, client: int, kept: tuple) -> int:
        if not self._bytes:
            return 0
        checksum, place = 0, self._next[client] * self._bytes
        for field, dtype in zip(kept, self._stored, strict=True):
            raw = field.detach().to("cpu", dtype).contiguous().view(torch.uint8).numpy().data
            checksum = zlib.crc32(raw, checksum)
            place += _write(self._file, raw, place)
        return checksum

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        if not self._bytes:
            return
        for client, checksum in zip(cohort.tolist(), checksums, strict=True):
            if client in self._slot_of:
                self._given_up.append((self._round, self._slot_of[client]))
            if self._free:
                self._free.popleft()
            else:
                self._slots += 1
            self._slot_of[client] = self._next[client]
            self._checksum_of[client] = int(checksum)

    def save(self) -> dict[str, Tensor]:
        """The table, once everything that it names is on the disk."""
        if not self._slot_of:
            return {}
        os.fsync(self._file)
        clients = sorted(self._slot_of)
        named = [number for pair in self._given_up for number in pair]
        return {
            _CLIENTS: torch.tensor(clients),
            _SLOTS: torch.tensor([self._slot_of[client] for client in clients]),
            _CHECKSUMS: torch.tensor([self._checksum_of[client] for client in clients]),
            _NAMED: torch.tensor(named, dtype=torch.int64),
        }

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Slots that the table does not know are free: whatever later rounds put there is to be done again."""
        self._slot_of, self._checksum_of = {}, {}
        self._given_up, self._free, self._slots = deque(), deque(), 0
        if not saved:
            return
        clients, slots, checksums = (saved[name].tolist() for name in (_CLIENTS, _SLOTS, _CHECKSUMS))
        self._slot_of = dict(zip(clients, slots, strict=True))
        self._checksum_of = dict(zip(clients, checksums, strict=True))
        named = saved[_NAMED].tolist()
        self._given_up = deque(zip(named[::2], named[1::2], strict=True))
        used = set(slots) | {slot for _, slot in self._given_up}
        self._slots = max(used) + 1
        self._free = deque(slot for slot in range(self._slots) if slot not in used)

    def take(self, saved: dict[str, Tensor]) -> str | None:
        """Restore, and say what is damaged, if anything is."""
        try:
            self.restore(saved)
            for client in self._slot_of:
                self.get(client)
        except (KeyError, ValueError, OSError) as error:
            return f"what clients keep cannot be read: {error}"
        return None


def _read(file: int, raw: memoryview, place: int) -> bool:
    """Whether all of it was there: a single call reads 2 GiB at most."""
    done = 0
    while done < len(raw):
        some = os.preadv(file, [raw[done:]], place + done)
        if not some:
            return False
        done += some
    return True


def _write(file: int, raw: Any, place: int) -> int:
    """All of it: a single call writes 2 GiB at most."""
    view, done = memoryview(raw).cast("B"), 0
    while done < len(view):
        done += os.pwrite(file, view[done:], place + done)
    return done
