"""Data as a federation sees them: one tensor, and for every client its own examples of it."""

import hashlib
from collections.abc import Sequence
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from fedcm.data.dataset import Dataset, Examples, Normalisation


class FederatedData(Protocol):
    """What executors and evaluation ask of data; clients are numbered 0 … population − 1."""

    @property
    def population(self) -> int: ...

    @property
    def test_size(self) -> int: ...

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """How many examples each of these clients holds."""
        ...

    def client(self, client: int) -> Examples:
        """All examples of one client, ready for the model."""
        ...

    def some(self, clients: Sequence[int], index: Tensor) -> Examples:
        """Of each client the examples at its row of `index` (C, b): features (C, b, …) and labels (C, b)."""
        ...

    def test(self, start: int, stop: int) -> Examples:
        """A piece of the held-out examples, ready for the model."""
        ...


@final
class ArrayData:
    """A dataset dealt out: the examples stay where they are and as they came (bytes stay bytes, and what is mapped into
    memory is there once for all processes); a client's are made ready for the model when they are asked for."""

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[np.ndarray],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.order = torch.from_numpy(np.concatenate(parts).astype(np.int64))  # client after client
        self.offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        self.train = dataset.train
        self.held_out = dataset.test
        self.normalisation = dataset.normalisation
        self.dtype = dtype
        self.device = device

    @property
    def population(self) -> int:
        return len(self.offsets) - 1

    @property
    def test_size(self) -> int:
        return 0 if self.held_out is None else self.held_out.size

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return self.offsets[clients + 1] - self.offsets[clients]

    def client(self, client: int) -> Examples:
        index = self.order[int(self.offsets[client]) : int(self.offsets[client + 1])]
        return self._ready(self.train.features.index_select(0, index), self.train.labels.index_select(0, index))

    def some(self, clients: Sequence[int], index: Tensor) -> Examples:
        rows = self.order[(torch.from_numpy(self.offsets[list(clients)])[:, None] + index).reshape(-1)]
        picked = self._ready(self.train.features.index_select(0, rows), self.train.labels.index_select(0, rows))
        return Examples(*[part.unflatten(0, tuple(index.shape)) for part in picked])

    def test(self, start: int, stop: int) -> Examples:
        assert self.held_out is not None
        return self._ready(self.held_out.features[start:stop], self.held_out.labels[start:stop])

    def _ready(self, features: Tensor, labels: Tensor) -> Examples:
        features = ready(features.to(self.device), self.normalisation, self.dtype)
        labels = labels.to(self.device)
        return Examples(features, labels.to(self.dtype if labels.is_floating_point() else torch.int64))


def ready(features: Tensor, normalisation: Normalisation | None, dtype: torch.dtype) -> Tensor:
    """Bytes to normalised floats; images in channels_last, which convolutions on CPUs run fastest in."""
    if features.is_floating_point() or normalisation is not None:
        features = features.to(dtype)  # token ids and the like stay integers
    if features.dim() == 4:
        features = features.contiguous(memory_format=torch.channels_last)
    if normalisation is not None:
        shape = (-1, *[1] * (features.dim() - 2))
        mean = features.new_tensor(normalisation.mean).reshape(shape)
        std = features.new_tensor(normalisation.std).reshape(shape)
        features = (features / normalisation.scale - mean) / std
    return features


def fingerprint(dataset: Dataset, parts: Sequence[np.ndarray]) -> dict[str, str]:
    """sha256 of everything that a run's numbers depend on: the examples as they came, and who holds which."""
    sums = dict(dataset.checksums)
    for name, examples in (("train", dataset.train), ("test", dataset.test)):
        if examples is not None and f"{name}_features" not in sums:
            sums[f"{name}_features"] = _sha256(examples.features.contiguous().numpy())
            sums[f"{name}_labels"] = _sha256(examples.labels.contiguous().numpy())
    sums["split"] = _sha256(*[part.astype("<i8") for part in parts], np.array([len(part) for part in parts], "<i8"))
    return sums


def _sha256(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
