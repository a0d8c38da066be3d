"""Client states between rounds. A client that has not taken part yet has the initial state."""

from typing import Any, Protocol, final

import numpy as np


class ClientStates(Protocol):
    """Stores client states.

    The new states of a round are put one by one and take effect with `commit`: all of them, or after an error none.
    """

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        """Prepare for a round; called in every process before the first client."""
        ...

    def list_clients(self) -> list[int]:
        """Return the clients whose state is not the initial one."""
        ...

    def get(self, client: int) -> Any:
        """Return the state of a client."""
        ...

    def put(self, client: int, kept: tuple) -> int:
        """Store the new state of a client and return its checksum, or 0 if this storage has no checksums."""
        ...

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        """Make the new states current; called in every process after the last client of all processes."""
        ...


@final
class ClientStatesInMemory:
    """Client states in the memory of this process.

    Args:
        initial: The state of a client that has not taken part yet.
    """

    def __init__(self, initial: tuple) -> None:
        self._initial = initial
        self._current: dict[int, tuple] = {}
        self._new: dict[int, tuple] = {}

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        """Forget the states of a round that was not committed."""
        self._new = {}

    def list_clients(self) -> list[int]:
        """Return the clients whose state is not the initial one."""
        return sorted(self._current)

    def get(self, client: int) -> Any:
        """Return the state of a client."""
        return self._current.get(client, self._initial)

    def put(self, client: int, kept: tuple) -> int:
        """Store the new state of a client; return 0, because memory needs no checksum."""
        if self._initial:
            self._new[client] = kept
        return 0

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        """Make the new states current."""
        self._current |= self._new
