"""What clients keep between rounds, for those already seen; a client not yet seen has the algorithm's initial state."""

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

from fedcm.algorithm import Algorithm, Vector, messages

_CLIENTS = "@clients"  # no field of a state can be called so


@final
class ClientStates:
    """In memory, one state a client."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], params: Vector) -> None:
        self._kind = messages(type(algorithm)).kept
        self._fields: tuple[str, ...] = getattr(self._kind, "_fields", ())
        self._unseen = algorithm.init_client(params)
        self._seen: dict[int, tuple] = {}

    def get(self, client: int) -> Any:
        return self._seen.get(client, self._unseen)

    def put(self, states: Iterable[tuple[int, tuple]]) -> None:
        if self._fields:
            self._seen.update(states)

    def save(self) -> dict[str, Tensor]:
        """`@clients` (M,), and (M, P) for every field; nothing where clients keep nothing."""
        if not self._seen:
            return {}
        ids = sorted(self._seen)
        rows = {name: torch.stack([self._seen[client][k] for client in ids]) for k, name in enumerate(self._fields)}
        return {_CLIENTS: torch.tensor(ids), **rows}

    def restore(self, saved: dict[str, Tensor]) -> None:
        self._seen = {}
        if saved:
            columns = [saved[name].unbind() for name in self._fields]
            for client, *fields in zip(saved[_CLIENTS].tolist(), *columns, strict=True):
                like = zip(fields, self._unseen, strict=True)
                self._seen[client] = self._kind(*[field.to(unseen) for field, unseen in like])
