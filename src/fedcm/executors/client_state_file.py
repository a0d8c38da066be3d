"""Client states in one file that the workers of a machine share. The system caches it in memory as long as it fits.

Every state has a slot of the file. A new state goes to a free slot, never over the old one. The table of clients and
their slots changes at the end of a round, so a crash at any moment leaves the states of the last checkpoint intact. A
checkpoint stores the table alone, with a checksum per slot. The free slots follow from the cohorts, which every process
knows, so processes need not communicate. A released slot is reused when no stored checkpoint can refer to it any more.
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

_CLIENTS, _SLOTS, _CHECKSUMS, _RELEASED = "@clients", "@slots", "@checksums", "@named"  # keys in a checkpoint


@final
class ClientStatesInFile:
    """Client states in a file; see the module's docstring."""

    def __init__(
        self,
        initial: tuple,
        path: Path,
        retained_rounds: int,
        storage_dtype: torch.dtype | None = None,
    ) -> None:
        """Open the file, or create it.

        Args:
            initial: The state of a client that has not taken part yet; it gives fields, shapes and dtypes.
            path: The file of the states.
            retained_rounds: For how many rounds a stored checkpoint may refer to a released slot.
            storage_dtype: The type to which stored states are rounded; by default they are stored exactly.
        """
        self._kind = type(initial)
        self._initial = initial
        self._dtypes = [storage_dtype or field.dtype for field in self._initial]
        self._lengths = [
            field.numel() * dtype.itemsize for field, dtype in zip(self._initial, self._dtypes, strict=True)
        ]
        self._slot_bytes = sum(self._lengths)  # 0 if clients have no state
        self._path = path
        self._retained_rounds = retained_rounds
        self._slot_of: dict[int, int] = {}
        self._checksum_of: dict[int, int] = {}
        self._released: deque[tuple[int, int]] = deque()  # (round, slot), oldest first
        self._free: deque[int] = deque()
        self._slots = 0  # in the file so far
        self._next: dict[int, int] = {}
        self._round = 0
        if self._slot_bytes:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        """Choose a free slot for each client of the cohort."""
        self._round = round
        self._next = {}
        if not self._slot_bytes:
            return
        while self._released and self._released[0][0] + self._retained_rounds <= round:
            self._free.append(self._released.popleft()[1])
        free = list(itertools.islice(self._free, len(cohort)))
        for position, client in enumerate(cohort.tolist()):
            new_slot = self._slots + position - len(free)
            self._next[client] = free[position] if position < len(free) else new_slot

    def close(self) -> None:
        """Close the file."""
        if self._slot_bytes and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def list_clients(self) -> list[int]:
        """Return the clients whose state is not the initial one."""
        return sorted(self._slot_of)

    def get(self, client: int) -> Any:
        """Return the state of a client.

        Raises:
            OSError: If its slot is damaged.
        """
        if client not in self._slot_of:
            return self._initial
        raw = torch.empty(self._slot_bytes, dtype=torch.uint8)
        complete = _read(self._file, raw.numpy().data, self._slot_of[client] * self._slot_bytes)
        if not complete or zlib.crc32(raw.numpy().data) != self._checksum_of[client]:
            raise OSError(f"the state of client {client} is damaged in {self._path}")
        fields = zip(raw.split(self._lengths), self._dtypes, self._initial, strict=True)
        return self._kind(*[part.view(dtype).view(like.shape).to(like) for part, dtype, like in fields])

    def put(self, client: int, kept: tuple) -> int:
        """Write the new state of a client to its next slot and return the checksum."""
        if not self._slot_bytes:
            return 0
        checksum, offset = 0, self._next[client] * self._slot_bytes
        for field, dtype in zip(kept, self._dtypes, strict=True):
            raw = field.detach().to("cpu", dtype).contiguous().view(torch.uint8).numpy().data
            checksum = zlib.crc32(raw, checksum)
            offset += _write(self._file, raw, offset)
        return checksum

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        """Point the table to the new slots and release the old ones."""
        if not self._slot_bytes:
            return
        for client, checksum in zip(cohort.tolist(), checksums, strict=True):
            if client in self._slot_of:
                self._released.append((self._round, self._slot_of[client]))
            if self._free:
                self._free.popleft()
            else:
                self._slots += 1
            self._slot_of[client] = self._next[client]
            self._checksum_of[client] = int(checksum)

    def save(self) -> dict[str, Tensor]:
        """Return the table for a checkpoint, after all states that it refers to are on the disk."""
        if not self._slot_of:
            return {}
        os.fsync(self._file)
        clients = sorted(self._slot_of)
        released = [number for pair in self._released for number in pair]
        return {
            _CLIENTS: torch.tensor(clients),
            _SLOTS: torch.tensor([self._slot_of[client] for client in clients]),
            _CHECKSUMS: torch.tensor([self._checksum_of[client] for client in clients]),
            _RELEASED: torch.tensor(released, dtype=torch.int64),
        }

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Restore the table of a checkpoint. All slots that it does not mention are free."""
        self._slot_of, self._checksum_of = {}, {}
        self._released, self._free, self._slots = deque(), deque(), 0
        if not saved:
            return
        clients, slots, checksums = (saved[name].tolist() for name in (_CLIENTS, _SLOTS, _CHECKSUMS))
        self._slot_of = dict(zip(clients, slots, strict=True))
        self._checksum_of = dict(zip(clients, checksums, strict=True))
        released = saved[_RELEASED].tolist()
        self._released = deque(zip(released[::2], released[1::2], strict=True))
        used = set(slots) | {slot for _, slot in self._released}
        self._slots = max(used) + 1
        self._free = deque(slot for slot in range(self._slots) if slot not in used)

    def try_restore(self, saved: dict[str, Tensor]) -> str | None:
        """Restore the table and read every state; return what is damaged, or None if nothing is."""
        try:
            self.restore(saved)
            for client in self._slot_of:
                self.get(client)
        except (KeyError, ValueError, OSError) as error:
            return f"the client states cannot be read: {error}"
        return None


def _read(file: int, raw: memoryview, offset: int) -> bool:
    """Fill the buffer, by several calls because one reads at most 2 GiB; return whether the file was long enough."""
    done = 0
    while done < len(raw):
        count = os.preadv(file, [raw[done:]], offset + done)
        if not count:
            return False
        done += count
    return True


def _write(file: int, raw: Any, offset: int) -> int:
    """Write the buffer, by several calls because one writes at most 2 GiB; return its length."""
    view, done = memoryview(raw).cast("B"), 0
    while done < len(view):
        done += os.pwrite(file, view[done:], offset + done)
    return done
