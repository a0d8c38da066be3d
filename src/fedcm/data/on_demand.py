"""Clients whose data are made when they are asked for: a million of them cost no more than those that take part.

A source gives how many there are, how many examples each holds, and a function from a client's number to its examples.
That function must give the same whenever and wherever it is called: draw from a generator seeded by the number.
"""

import copy
import hashlib
import operator
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from fedcm.data.checksum import sha256
from fedcm.data.dataset import ClientsOnDemand, Examples, is_count
from fedcm.data.examples import same_kind
from fedcm.data.federated import Pick, prepare_examples
from fedcm.data.imported import as_examples, warn_if_test_is_random
from fedcm.errors import UserError
from fedcm.system.faults import describe_error


@final
class OnDemandData:
    """`ClientsOnDemand` as executors see them; each client is checked when it is made."""

    def __init__(self, clients: ClientsOnDemand, name: str = "clients") -> None:
        """Makes the first client twice: what is not the same every time is refused now."""
        self.source, self.name = clients, name
        self.dtype, self.device, self.layout = torch.float32, torch.device("cpu"), "channels_last"
        self._first, again = self._tried(0), self._tried(0)
        if not all(map(torch.equal, self._first, again)):
            raise UserError(
                f"{name}: a client must be the same whenever it is made, and client 0 was not; draw from a generator "
                "seeded by the client's number"
            )
        if self._first.features.dtype == torch.uint8 and clients.normalisation is None:
            raise UserError(
                f"{name}: features of bytes need a normalisation, because nobody has seen all clients; give one to "
                "ClientsOnDemand, or make floats"
            )
        self._held_out = None if clients.test is None else as_examples(clients.test, where=f"{name}, the test set")
        if self._held_out is not None:
            same_kind(self._first, self._held_out, f"{name}: client 0", "the test set")
            self._reject_unknown_class(self._held_out, "the test set")
            warn_if_test_is_random(name, clients.test, self._held_out)

    @property
    def population(self) -> int:
        return self.source.population

    @property
    def test_size(self) -> int:
        return 0 if self._held_out is None else self._held_out.size

    @property
    def classes(self) -> int | None:
        return self.source.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._first.features.shape[1:])

    def ready_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "OnDemandData":
        other = copy.copy(self)
        other.dtype, other.device, other.layout = dtype, device, layout
        return other

    def checksums(self) -> dict[str, str]:
        """The first and the last client stand for all, with the version that the source gives itself."""
        digest = hashlib.sha256(f"{self.population} {self.classes} {self.source.version}".encode())
        for client in (0, self.population - 1):
            for part in self._tried(client):
                digest.update(part.numpy().data)
        sums = {"clients": digest.hexdigest()}
        if self._held_out is not None:
            sums["test_features"], sums["test_labels"] = (sha256(part.numpy()) for part in self._held_out)
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return np.array([self._size(client) for client in clients.tolist()], np.int64)

    def client(self, client: int) -> Examples:
        made = self._made(client)
        if client:
            same_kind(self._first, made, f"{self.name}: client 0", f"client {client}")
        return prepare_examples(made, self.source.normalisation, self.dtype, self.device, self.layout)

    def stacked(self, clients: Sequence[int]) -> Pick:
        """Makes each once."""
        made = [self.client(client) for client in clients]
        together = Examples(*[pad_sequence(list(parts), batch_first=True) for parts in zip(*made, strict=True)])
        rows = torch.arange(len(made), device=self.device)[:, None]
        return lambda index: Examples(*[part[rows, index.to(self.device)] for part in together])

    def test(self, start: int, stop: int) -> Examples:
        assert self._held_out is not None
        piece = Examples(self._held_out.features[start:stop], self._held_out.labels[start:stop])
        return prepare_examples(piece, self.source.normalisation, self.dtype, self.device, self.layout)

    def _size(self, client: int) -> int:
        size = self.source.size(client) if callable(self.source.size) else self.source.size
        if not is_count(size, 1):
            raise UserError(f"{self.name}: every client must hold at least one example, got size({client}) = {size!r}")
        return operator.index(size)

    def _tried(self, client: int) -> Examples:
        """Before the first round: what fails is refused."""
        try:
            return self._made(client)
        except Exception as error:  # the user's own code: anything can come out of it
            if isinstance(error, UserError):
                raise
            raise UserError(f"{self.name}: client {client} could not be made: {describe_error(error)}") from error

    def _made(self, client: int) -> Examples:
        made = as_examples(self.source.client(client), where=f"{self.name}, client {client}")
        if made.size != (size := self._size(client)):
            raise UserError(f"{self.name}: client {client} must hold the {size} examples of its size, got {made.size}")
        self._reject_unknown_class(made, f"client {client}")
        return made

    def _reject_unknown_class(self, made: Examples, who: str) -> None:
        floats = made.labels.is_floating_point()
        if floats != (self.classes is None):
            raise UserError(
                f"{self.name}: labels must be integers where there are classes, and floats where classes is None, got "
                f"{'floats' if floats else 'integers'} in {who} and classes = {self.classes}"
            )
        if self.classes is not None and (largest := int(made.labels.max())) >= self.classes:
            raise UserError(f"{self.name}: labels must be less than classes = {self.classes}, got {largest} in {who}")
