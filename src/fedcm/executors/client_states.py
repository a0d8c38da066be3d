"""What clients keep between rounds, for those already seen; a client not yet seen has the algorithm's initial state."""

from typing import Any, Protocol, final

import numpy as np

from fedcm.core.algorithm import Algorithm, Vector, messages


class ClientStates(Protocol):
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


@final
class ClientStatesInMemory:
    """In this process's memory, one state a client."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], params: Vector) -> None:
        self._keeps = bool(getattr(messages(type(algorithm)).kept, "_fields", ()))
        self._unseen = algorithm.init_client(params)
        self._seen: dict[int, tuple] = {}
        self._new: dict[int, tuple] = {}

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        self._new = {}

    def get(self, client: int) -> Any:
        return self._seen.get(client, self._unseen)

    def put(self, client: int, kept: tuple) -> int:
        if self._keeps:
            self._new[client] = kept
        return 0

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        self._seen |= self._new
