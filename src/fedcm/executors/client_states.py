"""What clients keep between rounds, for those already seen; a client not yet seen has the algorithm's initial state."""

from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor

from fedcm.algorithm import Algorithm, Vector, messages

CLIENTS = "@clients"  # no field of a state can be called so


class States(Protocol):
    """A round's new states come one by one and count from `commit` on: all of them, or after an error none."""

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        """Said in every process before the round's first client."""
        ...

    def get(self, client: int) -> Any: ...

    def put(self, client: int, kept: tuple) -> int:
        """The checksum of what was put, for whoever keeps checksums."""
        ...

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        """Said in every process when the round's last client is done anywhere."""
        ...

    def save(self) -> dict[str, Tensor]:
        """For a checkpoint; nothing where clients keep nothing."""
        ...

    def restore(self, saved: dict[str, Tensor]) -> None: ...


@final
class MemoryStates:
    """In this process's memory, one state a client."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], params: Vector) -> None:
        self._kind = messages(type(algorithm)).kept
        self._fields: tuple[str, ...] = getattr(self._kind, "_fields", ())
        self._unseen = algorithm.init_client(params)
        self._seen: dict[int, tuple] = {}
        self._new: dict[int, tuple] = {}

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        self._new = {}

    def get(self, client: int) -> Any:
        return self._seen.get(client, self._unseen)

    def put(self, client: int, kept: tuple) -> int:
        if self._fields:
            self._new[client] = kept
        return 0

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        self._seen |= self._new

    def save(self) -> dict[str, Tensor]:
        """`@clients` (M,), and (M, P) for every field."""
        if not self._seen:
            return {}
        ids = sorted(self._seen)
        rows = {name: torch.stack([self._seen[client][k] for client in ids]) for k, name in enumerate(self._fields)}
        return {CLIENTS: torch.tensor(ids), **rows}

    def restore(self, saved: dict[str, Tensor]) -> None:
        self._seen = {}
        if saved:
            columns = [saved[name].unbind() for name in self._fields]
            for client, *fields in zip(saved[CLIENTS].tolist(), *columns, strict=True):
                like = zip(fields, self._unseen, strict=True)
                self._seen[client] = self._kind(*[field.to(unseen) for field, unseen in like])
