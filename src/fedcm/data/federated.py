"""Data as a federation sees them: one tensor, and for every client its own examples of it."""

import copy
from collections.abc import Callable, Sequence
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from fedcm.data.checksum import sha256
from fedcm.data.dataset import Dataset, Examples, Normalisation

Pick = Callable[[Tensor], Examples]  # indices (C, b), a row for each of C clients -> features (C, b, …), labels (C, b)


class FederatedData(Protocol):
    """What executors and evaluation ask of data; clients are numbered 0 … population − 1."""

    @property
    def population(self) -> int: ...

    @property
    def test_size(self) -> int: ...

    @property
    def classes(self) -> int | None:
        """None for a regression."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""
        ...

    def ready_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "FederatedData":
        """The same data, for a model of this kind; images in this layout."""
        ...

    def checksums(self) -> dict[str, str]:
        """sha256 of everything that a run's numbers depend on, by part."""
        ...

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """How many examples each of these clients holds."""
        ...

    def client(self, client: int) -> Examples:
        """All examples of one client, ready for the model."""
        ...

    def stacked(self, clients: Sequence[int]) -> Pick:
        """Several clients' examples: the function that gives some of each."""
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
        self.dataset = dataset
        self.order = torch.from_numpy(np.concatenate(parts).astype(np.int64))  # client after client
        self.offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        self._resident: tuple[Examples, Examples | None] | None = None  # on a device that is not the CPU
        self.dtype = dtype
        self.device = device
        self.layout = "channels_last"

    @property
    def train(self) -> Examples:
        return self.dataset.train if self._resident is None else self._resident[0]

    @property
    def held_out(self) -> Examples | None:
        return self.dataset.test if self._resident is None else self._resident[1]

    @property
    def population(self) -> int:
        return len(self.offsets) - 1

    @property
    def test_size(self) -> int:
        return 0 if self.dataset.test is None else self.dataset.test.size

    @property
    def classes(self) -> int | None:
        return self.dataset.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.train.features.shape[1:])

    def ready_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "ArrayData":
        """On a device other than the CPU they are resident there, as they came."""
        other = copy.copy(self)
        other.dtype, other.device, other.layout = dtype, device, layout
        if device.type != "cpu":
            other.order = self.order.to(device)
            train, test = self.dataset.train, self.dataset.test
            there = None if test is None else Examples(*[part.to(device) for part in test])
            other._resident = Examples(*[part.to(device) for part in train]), there
        return other

    def checksums(self) -> dict[str, str]:
        """Of the examples as they came, and of who holds which."""
        sums = dict(self.dataset.checksums)
        for name, examples in (("train", self.dataset.train), ("test", self.dataset.test)):
            if examples is not None and f"{name}_features" not in sums:
                sums[f"{name}_features"] = sha256(examples.features.contiguous().numpy())
                sums[f"{name}_labels"] = sha256(examples.labels.contiguous().numpy())
        sums["split"] = sha256(self.order.cpu().numpy().astype("<i8"), np.diff(self.offsets).astype("<i8"))
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return self.offsets[clients + 1] - self.offsets[clients]

    def client(self, client: int) -> Examples:
        index = self.order[int(self.offsets[client]) : int(self.offsets[client + 1])]
        return self._at(index)

    def stacked(self, clients: Sequence[int]) -> Pick:
        starts = torch.from_numpy(self.offsets[list(clients)])[:, None].to(self.device)

        def pick(index: Tensor) -> Examples:
            picked = self._at(self.order[(starts + index.to(self.device)).reshape(-1)])
            return Examples(*[part.unflatten(0, tuple(index.shape)) for part in picked])

        return pick

    def test(self, start: int, stop: int) -> Examples:
        assert self.held_out is not None
        return self._ready(Examples(self.held_out.features[start:stop], self.held_out.labels[start:stop]))

    def _at(self, index: Tensor) -> Examples:
        train = self.train
        return self._ready(Examples(train.features.index_select(0, index), train.labels.index_select(0, index)))

    def _ready(self, examples: Examples) -> Examples:
        return prepare_examples(examples, self.dataset.normalisation, self.dtype, self.device, self.layout)


def prepare_examples(
    examples: Examples,
    normalisation: Normalisation | None,
    dtype: torch.dtype,
    device: torch.device | str,
    layout: str = "channels_last",
) -> Examples:
    """Examples as they came become what a model of this dtype on this device takes."""
    labels = examples.labels.to(device)
    labels = labels.to(dtype if labels.is_floating_point() else torch.int64)
    return Examples(ready(examples.features.to(device), normalisation, dtype, layout), labels)


def ready(
    features: Tensor, normalisation: Normalisation | None, dtype: torch.dtype, layout: str = "channels_last"
) -> Tensor:
    """Bytes to normalised floats; images in channels_last unless told, which convolutions on CPUs run fastest in."""
    if features.is_floating_point() or normalisation is not None:
        features = features.to(dtype)  # token ids and the like stay integers
    if features.dim() == 4 and layout == "channels_last":
        features = features.contiguous(memory_format=torch.channels_last)
    if normalisation is not None:
        shape = (-1, *[1] * (features.dim() - 2))
        mean = features.new_tensor(normalisation.mean).reshape(shape)
        std = features.new_tensor(normalisation.std).reshape(shape)
        features = (features / normalisation.scale - mean) / std
    return features
