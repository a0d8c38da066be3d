"""Data as executors and evaluation use them: the examples of each client, and the test set."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedcm.data.client_tests import ClientTests
from fedcm.data.dataset import IGNORED, Dataset, Examples, Normalisation
from fedcm.data.randomness_check import seed_global_generators
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import iterate_tensors, list_leaves, map_leaves, select_rows
from fedcm.errors import UserError
from fedcm.system.checksum import compute_sha256
from fedcm.system.storage.mapped_files import read_rows, reject_changed_file

EXPLAIN_FRESH = (
    "data.fresh needs data that are read item by item from torch datasets, such as a list of them from "
    "package.module:function; these data are arrays"
)

SelectExamples = Callable[[Tensor], Examples]
"""Selects examples of C clients by indices (C, b) into their data: features (C, b, …) and labels (C, b)."""


class FederatedData(Protocol):
    """The data of a population of clients, numbered 0 … population − 1."""

    @property
    def population(self) -> int:
        """The number of clients."""
        ...

    @property
    def test_size(self) -> int:
        """The number of test examples."""
        ...

    @property
    def is_stackable(self) -> bool:
        """Whether features and labels are one tensor each, without ignored labels, so that clients can be stacked."""
        ...

    @property
    def validation_size(self) -> int:
        """The number of validation examples."""
        ...

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether all batches of one size have one shape, because no sequences have unequal lengths."""
        ...

    @property
    def classes(self) -> int | None:
        """The number of classes; None for a regression."""
        ...

    @property
    def input_shape(self) -> Any:
        """The shape of one example's features; a structure of shapes if there are several tensors."""
        ...

    def prepare_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "FederatedData":
        """Return the same data for a model of this dtype on this device.

        Args:
            dtype: The dtype of features and float labels.
            device: The device of the examples.
            layout: The memory layout of images, "channels_last" or "contiguous".
        """
        ...

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of everything that a run's numbers depend on, by part."""
        ...

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """Return the number of examples of each of these clients."""
        ...

    def client(self, client: int) -> Examples:
        """Return all examples of one client, ready for the model."""
        ...

    def reread_client(self, client: int, torch_seed: int) -> Examples:
        """Read all examples of one client anew from its torch dataset, whose random transforms follow from the seed."""
        ...

    def stack_clients(self, clients: Sequence[int]) -> SelectExamples:
        """Return a function that selects examples of several clients at once, ready for the model."""
        ...

    def test_slice(self, start: int, stop: int) -> Examples:
        """Return the test examples from `start` to `stop`, ready for the model."""
        ...

    def validation_slice(self, start: int, stop: int) -> Examples:
        """Return the validation examples from `start` to `stop`, ready for the model."""
        ...


@runtime_checkable
class ClientTestData(Protocol):
    """Data in which clients may have test data of their own."""

    @property
    def has_client_tests(self) -> bool:
        """Whether clients are evaluated on test data of their own."""
        ...

    def list_tested_clients(self) -> np.ndarray:
        """Return the clients that have test data of their own."""
        ...

    def client_test(self, client: int) -> Examples:
        """Return the test examples of one client, ready for the model."""
        ...


def find_client_tests(data: FederatedData) -> ClientTestData | None:
    """Return the data as those of clients with test data of their own; None if there are no such test data."""
    return data if isinstance(data, ClientTestData) and data.has_client_tests else None


@final
class ArrayData:
    """A dataset in memory, split over clients.

    The examples are stored once and unchanged: bytes stay bytes, and all processes share arrays that are mapped from
    files. A client's examples are converted for the model each time they are requested.

    Args:
        dataset: The whole dataset.
        parts: For each client, the indices of its training examples.
        dtype: The dtype of features and float labels.
        device: The device of the examples.
        held_back: The indices of the training examples that are the validation set, in place of `dataset.validation`.
        client_tests: The test data of each client, if there are any.
    """

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[np.ndarray],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        held_back: np.ndarray | None = None,
        client_tests: ClientTests | None = None,
    ) -> None:
        self.dataset = dataset
        self.order = torch.from_numpy(np.concatenate(parts).astype(np.int64))  # client after client
        self.offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        self.client_tests = client_tests
        self.validation_index = None if held_back is None else torch.from_numpy(held_back.astype(np.int64))
        self._resident: tuple[Examples, Examples | None] | None = None  # copies on a device other than the CPU
        self.dtype = dtype
        self.device = device
        self.layout = "channels_last"

    @property
    def train(self) -> Examples:
        """The raw training examples of all clients, on the device."""
        return self.dataset.train if self._resident is None else self._resident[0]

    @property
    def held_out(self) -> Examples | None:
        """The raw test examples, on the device."""
        return self.dataset.test if self._resident is None else self._resident[1]

    @property
    def population(self) -> int:
        return len(self.offsets) - 1

    @property
    def test_size(self) -> int:
        return 0 if self.dataset.test is None else self.dataset.test.size

    @property
    def is_stackable(self) -> bool:
        return is_stackable(self.dataset.train)

    @property
    def validation_size(self) -> int:
        if self.validation_index is not None:
            return len(self.validation_index)
        return 0 if self.dataset.validation is None else self.dataset.validation.size

    @property
    def has_fixed_shapes(self) -> bool:
        return has_fixed_shapes(self.dataset.train)

    @property
    def classes(self) -> int | None:
        return self.dataset.classes

    @property
    def input_shape(self) -> Any:
        return get_input_shape(self.dataset.train)

    def prepare_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "ArrayData":
        """Return the same data for a model; on a device other than the CPU, the raw examples are copied there once."""
        other = copy.copy(self)
        other.dtype, other.device, other.layout = dtype, device, layout
        if device.type != "cpu":
            other.order = self.order.to(device)
            other.validation_index = None if self.validation_index is None else self.validation_index.to(device)
            train, test = self.dataset.train, self.dataset.test
            test_on_device = None if test is None else test.map(lambda part: part.to(device))
            other._resident = train.map(lambda part: part.to(device)), test_on_device
        return other

    def reject_changes(self) -> None:
        """Raise UserError if the training examples are mapped from a file that was overwritten."""
        if self.dataset.mapped and isinstance(self.dataset.train.features, Tensor):
            reject_changed_file(self.dataset.train.features.numpy())

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of the raw examples and of the split."""
        sums = dict(self.dataset.checksums)
        own = {"train": self.dataset.train, "test": self.dataset.test, "validation": self.dataset.validation}
        for name, examples in own.items():
            if examples is not None and f"{name}_features" not in sums:
                sums |= hash_examples(examples, name)
        sums["split"] = compute_sha256(self.order.cpu().numpy().astype("<i8"), np.diff(self.offsets).astype("<i8"))
        if self.validation_index is not None:
            sums["validation"] = compute_sha256(self.validation_index.cpu().numpy().astype("<i8"))
        if self.client_tests is not None:
            parts = self.client_tests.parts
            index, counts = np.concatenate(parts).astype("<i8"), np.array([len(part) for part in parts], "<i8")
            sums["client_tests"] = compute_sha256(index, counts)
            if self.client_tests.examples is not None:
                sums |= hash_examples(self.client_tests.examples, "client_tests")
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return self.offsets[clients + 1] - self.offsets[clients]

    def client(self, client: int) -> Examples:
        index = self.order[int(self.offsets[client]) : int(self.offsets[client + 1])]
        return self._select(index)

    def reread_client(self, client: int, torch_seed: int) -> Examples:
        index = self.order[int(self.offsets[client]) : int(self.offsets[client + 1])]
        if self.dataset.reread is None:
            raise UserError(EXPLAIN_FRESH)
        with seed_global_generators(torch_seed):
            return self._prepare(self.dataset.reread(index.tolist()))

    def stack_clients(self, clients: Sequence[int]) -> SelectExamples:
        starts = torch.from_numpy(self.offsets[list(clients)])[:, None].to(self.device)

        def select(index: Tensor) -> Examples:
            selected = self._select(self.order[(starts + index.to(self.device)).reshape(-1)])
            return selected.map(lambda part: part.unflatten(0, tuple(index.shape)))

        return select

    def test_slice(self, start: int, stop: int) -> Examples:
        assert self.held_out is not None
        return self._prepare(self.held_out.slice(start, stop))

    def validation_slice(self, start: int, stop: int) -> Examples:
        if self.validation_index is not None:
            return self._select(self.validation_index[start:stop])
        assert self.dataset.validation is not None
        return self._prepare(self.dataset.validation.slice(start, stop))

    @property
    def has_client_tests(self) -> bool:
        return self.client_tests is not None

    def list_tested_clients(self) -> np.ndarray:
        return np.zeros(0, np.int64) if self.client_tests is None else self.client_tests.list_clients()

    def client_test(self, client: int) -> Examples:
        assert self.client_tests is not None
        index = torch.from_numpy(self.client_tests.parts[client].astype(np.int64))
        if self.client_tests.examples is None:
            return self._select(index.to(self.device))
        return self._prepare(self.client_tests.examples.select(index))

    def _select(self, index: Tensor) -> Examples:
        return self._prepare(self._read(index))

    def _read(self, index: Tensor) -> Examples:
        """Return raw training examples."""
        features = self.train.features
        if self.dataset.mapped and isinstance(features, Tensor) and features.device.type == "cpu":
            read = torch.empty((len(index), *features.shape[1:]), dtype=features.dtype)
            if read_rows(features.numpy(), index.tolist(), read.numpy()):
                return Examples(read, select_rows(self.train.labels, index))
        return self.train.select(index)

    def _prepare(self, examples: Examples) -> Examples:
        return prepare_examples(examples, self.dataset.normalisation, self.dtype, self.device, self.layout)


def prepare_examples(
    examples: Examples,
    normalisation: Normalisation | None,
    dtype: torch.dtype,
    device: torch.device | str,
    layout: str = "channels_last",
) -> Examples:
    """Convert raw examples to those that a model of this dtype on this device takes."""
    labels = map_leaves(lambda leaf: _prepare_labels(leaf.to(device), dtype), examples.labels)
    features = map_leaves(
        lambda leaf: prepare_features(leaf.to(device), normalisation, dtype, layout), examples.features
    )
    return Examples(features, labels)


def _prepare_labels(labels: Any, dtype: torch.dtype) -> Any:
    return labels.to(dtype if labels.is_floating_point() else torch.int64)


def is_stackable(examples: Examples) -> bool:
    """Return whether features and labels are one tensor each, without ignored labels."""
    return examples.is_simple and not (examples.labels.dim() > 1 and bool((examples.labels == IGNORED).any()))


def has_fixed_shapes(examples: Examples) -> bool:
    """Return whether no sequences have unequal lengths."""
    return not any(isinstance(leaf, Ragged) for leaf in list_leaves(tuple(examples)))


def get_input_shape(examples: Examples) -> Any:
    """Return the shape of one example's features; in a structure of several tensors, a structure of shapes."""
    return map_leaves(lambda leaf: tuple(leaf.shape[1:]), examples.features)


def hash_examples(examples: Examples, part: str) -> dict[str, str]:
    """Return the sha256 of every tensor of the examples, by its name.

    Args:
        examples: The examples.
        part: The beginning of the names, such as "train".
    """
    fields = zip(Examples._fields, examples, strict=True)
    tensors = [pair for name, tree in fields for pair in iterate_tensors(tree, f"{part}_{name}")]
    return {name: compute_sha256(tensor.contiguous().numpy()) for name, tensor in tensors}


def prepare_features(
    features: Any, normalisation: Normalisation | None, dtype: torch.dtype, layout: str = "channels_last"
) -> Any:
    """Convert raw features to normalised floats.

    Images are in channels_last by default, because convolutions on CPUs run fastest in this layout. Integers without a
    normalisation, such as token ids, stay integers.
    """
    if features.is_floating_point() or normalisation is not None:
        features = features.to(dtype)
    if isinstance(features, Ragged):
        return features
    if features.dim() == 4 and layout == "channels_last":
        features = features.contiguous(memory_format=torch.channels_last)
    if normalisation is not None:
        shape = (-1, *[1] * (features.dim() - 2))
        mean = features.new_tensor(normalisation.mean).reshape(shape)
        std = features.new_tensor(normalisation.std).reshape(shape)
        features = (features / normalisation.scale - mean) / std
    return features
