"""What a data source returns: a whole dataset, or a population whose clients are created on demand."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
from torch import Tensor

from fedcm.errors import UserError


class Examples(NamedTuple):
    """Features (n, ...) and labels (n, ...); images are (n, channels, height, width)."""

    features: Tensor
    labels: Tensor

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.features.shape[0]


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
        mapped: Whether the arrays are mapped from files, so that all processes share one copy in memory.

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

    def __post_init__(self) -> None:
        for part, examples in (("train", self.train), ("test", self.test)):
            if examples is not None and not 0 < len(examples.features) == len(examples.labels):
                lengths = f"{len(examples.features)} and {len(examples.labels)}"
                raise UserError(f"{self.name}: the {part} features and labels must have the same length, got {lengths}")
            if examples is not None and not examples.labels.is_floating_point() and examples.labels.min() < 0:
                lowest = int(examples.labels.min())
                raise UserError(f"{self.name}: the {part} labels must be class numbers from 0 on, got {lowest}")
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
