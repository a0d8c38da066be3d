"""Clients whose data are created when they are needed, so a population of a million costs no more than its cohorts."""

import copy
import hashlib
import operator
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from fedcm.data.array_conversion import check_compatible, find_largest_label
from fedcm.data.dataset import ClientsOnDemand, Examples, is_count
from fedcm.data.federated import (
    EXPLAIN_FRESH,
    SelectExamples,
    get_input_shape,
    has_fixed_shapes,
    hash_examples,
    is_stackable,
    prepare_examples,
)
from fedcm.data.structures.tree import are_equal, is_leaf, iterate_tensors
from fedcm.data.user_data import convert_to_examples, warn_if_test_is_random
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error


@final
class OnDemandData:
    """The `FederatedData` of a `ClientsOnDemand`. Each client is checked when it is created.

    The constructor creates client 0 twice, to reject a source that does not return the same data every time.

    Args:
        clients: The population.
        name: What messages call it.

    Raises:
        UserError: If client 0 or the test set cannot be used.
    """

    def __init__(self, clients: ClientsOnDemand, name: str = "clients") -> None:
        self.source, self.name = clients, name
        self.dtype, self.device, self.layout = torch.float32, torch.device("cpu"), "channels_last"
        self._first, again = self._try_create(0), self._try_create(0)
        if not are_equal(self._first, again):
            raise UserError(
                f"{name}: a client must have the same data every time it is created, but client 0 did not; draw from a "
                "generator that is seeded with the client's index"
            )
        if self._first.is_simple and self._first.features.dtype == torch.uint8 and clients.normalisation is None:
            raise UserError(
                f"{name}: bytes need a normalisation, which cannot be computed without reading all clients; give "
                "ClientsOnDemand a normalisation, or return floats"
            )
        self._held_out = self._convert_held_out(clients.test, "test")
        self._validation = self._convert_held_out(clients.validation, "validation")

    @property
    def population(self) -> int:
        return self.source.population

    @property
    def test_size(self) -> int:
        return 0 if self._held_out is None else self._held_out.size

    @property
    def is_stackable(self) -> bool:
        return is_stackable(self._first)

    @property
    def validation_size(self) -> int:
        return 0 if self._validation is None else self._validation.size

    @property
    def has_fixed_shapes(self) -> bool:
        return has_fixed_shapes(self._first)

    @property
    def classes(self) -> int | None:
        return self.source.classes

    @property
    def input_shape(self) -> Any:
        return get_input_shape(self._first)

    def prepare_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "OnDemandData":
        other = copy.copy(self)
        other.dtype, other.device, other.layout = dtype, device, layout
        return other

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of the first and the last client with the source's version, and of the test set."""
        digest = hashlib.sha256(f"{self.population} {self.classes} {self.source.version}".encode())
        for client in (0, self.population - 1):
            for _, tensor in iterate_tensors(tuple(self._try_create(client))):
                digest.update(tensor.numpy().data)
        sums = {"clients": digest.hexdigest()}
        for name, examples in (("test", self._held_out), ("validation", self._validation)):
            if examples is not None:
                sums |= hash_examples(examples, name)
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return np.array([self._read_size(client) for client in clients.tolist()], np.int64)

    def client(self, client: int) -> Examples:
        created = self._create(client)
        if client:
            check_compatible(self._first, created, f"{self.name}: client 0", f"client {client}")
        return prepare_examples(created, self.source.normalisation, self.dtype, self.device, self.layout)

    def reread_client(self, client: int, torch_seed: int) -> Examples:
        raise UserError(EXPLAIN_FRESH)

    def stack_clients(self, clients: Sequence[int]) -> SelectExamples:
        """Create each client once, and return a function that selects examples of all of them."""
        created = [self.client(client) for client in clients]
        padded = Examples(*[pad_sequence(list(parts), batch_first=True) for parts in zip(*created, strict=True)])
        rows = torch.arange(len(created), device=self.device)[:, None]
        return lambda index: Examples(*[part[rows, index.to(self.device)] for part in padded])

    def test_slice(self, start: int, stop: int) -> Examples:
        return self._prepare_slice(self._held_out, start, stop)

    def validation_slice(self, start: int, stop: int) -> Examples:
        return self._prepare_slice(self._validation, start, stop)

    def _prepare_slice(self, examples: Examples | None, start: int, stop: int) -> Examples:
        assert examples is not None
        piece = examples.slice(start, stop)
        return prepare_examples(piece, self.source.normalisation, self.dtype, self.device, self.layout)

    def _convert_held_out(self, value: Any, which: str) -> Examples | None:
        if value is None:
            return None
        examples = convert_to_examples(value, where=f"{self.name}, the {which} set")
        check_compatible(self._first, examples, f"{self.name}: client 0", f"the {which} set")
        self._check_labels(examples, f"the {which} set")
        warn_if_test_is_random(self.name, value, examples, which)
        return examples

    def _read_size(self, client: int) -> int:
        size = self.source.size(client) if callable(self.source.size) else self.source.size
        if not is_count(size, 1):
            raise UserError(f"{self.name}: every client must have at least one example, got size({client}) = {size!r}")
        return operator.index(size)

    def _try_create(self, client: int) -> Examples:
        """Create a client before the first round; every exception becomes a UserError."""
        try:
            return self._create(client)
        except Exception as error:  # the user's code can raise anything
            if isinstance(error, UserError):
                raise
            raise UserError(f"{self.name}: client {client} could not be created: {describe_error(error)}") from error

    def _create(self, client: int) -> Examples:
        created = convert_to_examples(self.source.client(client), where=f"{self.name}, client {client}")
        if created.size != (size := self._read_size(client)):
            raise UserError(
                f"{self.name}: client {client} must have {size} examples, as its size says, got {created.size}"
            )
        self._check_labels(created, f"client {client}")
        return created

    def _check_labels(self, examples: Examples, who: str) -> None:
        if not is_leaf(examples.labels):
            return  # the user's own loss knows what they are
        are_floats = examples.labels.is_floating_point()
        if are_floats != (self.classes is None):
            raise UserError(
                f"{self.name}: labels must be integers, or floats if classes is None, got "
                f"{'floats' if are_floats else 'integers'} in {who} and classes = {self.classes}"
            )
        if self.classes is not None and (largest := find_largest_label(examples.labels)) >= self.classes:
            raise UserError(f"{self.name}: labels must be less than classes = {self.classes}, got {largest} in {who}")
