"""What a data source returns: a whole dataset, or a population whose clients are created on demand."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import (
    Tree,
    count_rows,
    iterate_leaves,
    list_leaves,
    map_leaves,
    select_rows,
    slice_rows,
)
from fedcm.errors import UserError

IGNORED = -100  # a label that no loss and no metric counts, as in torch


class Examples(NamedTuple):
    """Features and labels. Each is a tensor (n, ...), or a tuple or dict of such tensors.

    Images are (n, channels, height, width). A model of several inputs gets a tuple as its arguments and a dict by name.
    """

    features: Tree
    labels: Tree

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.features) if isinstance(self.features, Tensor) else count_rows(self.features)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        leaf = self.features if isinstance(self.features, Tensor) else list_leaves(self.features)[0]
        return leaf.device

    @property
    def is_simple(self) -> bool:
        """Whether features and labels are one tensor each."""
        return isinstance(self.features, Tensor) and isinstance(self.labels, Tensor)

    def select(self, index: Tensor) -> "Examples":
        """Return the examples at these indices."""
        return Examples(select_rows(self.features, index), select_rows(self.labels, index))

    def slice(self, start: int, stop: int) -> "Examples":
        """Return the examples from `start` to `stop`."""
        return Examples(slice_rows(self.features, start, stop), slice_rows(self.labels, start, stop))

    def map(self, function: Callable[[Any], Any]) -> "Examples":
        """Apply a function to every tensor of the features and labels."""
        return Examples(map_leaves(function, self.features), map_leaves(function, self.labels))


def count_scored_labels(labels: Tree) -> int:
    """Return how many labels count: the examples, or all class numbers if an example has several, without ignored ones.

    >>> count_scored_labels(torch.tensor([[3, 1], [2, IGNORED]])), count_scored_labels(torch.zeros(5, 2))
    (3, 5)
    """
    if not isinstance(labels, Tensor):
        return count_rows(labels)
    if labels.is_floating_point() or labels.dim() == 1:
        return len(labels)
    return int((labels != IGNORED).sum())


@dataclass(frozen=True)
class Normalisation:
    """Features become (x / scale − mean) / std, per channel; `scale` is 255 for bytes."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0


@dataclass(frozen=True)
class Dataset:
    """A whole dataset, not yet split over clients.

    Attributes:
        name: What messages call it.
        train: The training examples, not normalised.
        test: The test examples, if there are any.
        classes: The number of classes; None for a regression.
        normalisation: Applied when examples are loaded for a model; None to use the features unchanged.
        owners: (n,) The client 0 … N − 1 of each training example, if the data have a natural split.
        client_names: The names of these clients.
        checksums: The sha256 of each raw array, by its name, if it is known already.
        validation: Validation examples, if the data have some of their own.
        mapped: Whether the training features are mapped from a file, so that all processes share one copy in memory.
        reread: Reads training examples again by their indices, if they come from a torch dataset item by item.

    Raises:
        UserError: If lengths, labels or owners do not fit together.
    """

    name: str
    train: Examples
    test: Examples | None
    classes: int | None
    normalisation: Normalisation | None = None
    owners: np.ndarray | None = None
    client_names: tuple[str, ...] = ()
    checksums: dict[str, str] = field(default_factory=dict)
    mapped: bool = False
    reread: Callable[[Sequence[int]], Examples] | None = field(default=None, compare=False)
    validation: Examples | None = None

    def __post_init__(self) -> None:
        for part, examples in (("train", self.train), ("test", self.test), ("validation", self.validation)):
            if examples is not None:
                _check_examples(examples, f"{self.name}: the {part}")
        if self.owners is not None:
            if len(self.owners) != self.train.size:
                raise UserError(
                    f"{self.name}: every training example must have one owner, "
                    f"got {len(self.owners)} owners for {self.train.size} examples"
                )
            sizes = np.bincount(self.owners, minlength=1)
            if not sizes.all():
                raise UserError(
                    f"{self.name}: every client must have at least one example, but client {sizes.argmin()} has none"
                )


def _check_examples(examples: Examples, which: str) -> None:
    lengths = [len(leaf) for _, leaf in iterate_leaves(tuple(examples))]
    if not lengths or not 0 < lengths[0] == min(lengths) == max(lengths):
        text = " and ".join(map(str, lengths))
        raise UserError(f"{which} features and labels must have the same length, got {text}")
    if isinstance(examples.labels, Tensor | Ragged) and not examples.labels.is_floating_point():
        values = examples.labels.values if isinstance(examples.labels, Ragged) else examples.labels
        wrong = values < 0
        if isinstance(examples.labels, Ragged) or values.dim() > 1:
            wrong &= values != IGNORED
        if wrong.any():
            raise UserError(f"{which} labels must be class numbers from 0 on, got {int(values[wrong].min())}")


@final
@dataclass(frozen=True)
class ClientsOnDemand:
    """A population that is too large to hold in memory; a `package.module:function` may return it.

    Attributes:
        population: The number of clients.
        client: A function from a client's index 0 … population − 1 to its data: a pair (features, labels) or a torch
            dataset. It must return the same data whenever and wherever it is called.
        size: The number of examples of every client, or a function from a client's index to that number.
        classes: The number of classes; None for a regression.
        test: The test data, if there are any: a pair or a torch dataset.
        normalisation: Required if the features are bytes.
        validation: The validation data, if there are any, in the same form.
        version: Change it when the data of any client change; a resumed run compares it.

    Raises:
        UserError: If a field has a wrong type or value.
    """

    population: int
    client: Callable[[int], Any]
    size: int | Callable[[int], int]
    classes: int | None
    test: Any | None = None
    normalisation: Normalisation | None = None
    version: str = ""
    validation: Any | None = None

    def __post_init__(self) -> None:
        for name in ("population", "classes", "size"):
            number = getattr(self, name)
            if not callable(number) and not (name == "classes" and number is None) and not is_count(number, 1):
                raise UserError(f"ClientsOnDemand.{name} must be a whole number of at least 1, got {number!r}")
        if not callable(self.client):
            raise UserError(f"ClientsOnDemand.client must be a function of a client's index, got {self.client!r}")
        if not isinstance(self.version, str):
            raise UserError(f"ClientsOnDemand.version must be a string, got {self.version!r}")


def is_count(number: Any, minimum: int) -> bool:
    """Return whether a value is an integer, but no bool, of at least `minimum`."""
    try:
        return not isinstance(number, bool) and operator.index(number) >= minimum
    except TypeError:
        return False
