"""What data sources give: tensors as they lie on disk and how to make them ready for a model, or clients on demand."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
from torch import Tensor

from fedcm.errors import UserError


class Examples(NamedTuple):
    """Features (n, ...) and labels (n, ...): images are (n, channels, height, width)."""

    features: Tensor
    labels: Tensor

    @property
    def size(self) -> int:
        return self.features.shape[0]


@dataclass(frozen=True)
class Normalisation:
    """(x / scale − mean) / std, a channel at a time; `scale` is 255 for bytes."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0


@dataclass(frozen=True)
class Dataset:
    """One source of data, whole: not yet split over clients."""

    name: str
    train: Examples
    test: Examples | None
    classes: int | None  # None for a regression
    normalisation: Normalisation | None = None  # None: the features go to the model as they are
    owners: np.ndarray | None = None  # (n,) the client 0..N−1 of each training example, where the data bring a split
    client_names: tuple[str, ...] = ()  # what those clients are called
    checksums: dict[str, str] = field(default_factory=dict)  # name of a part -> sha256 of its raw array
    mapped: bool = False  # into memory from files: there once, however many processes read them

    def __post_init__(self) -> None:
        for part, examples in (("train", self.train), ("test", self.test)):
            if examples is not None and not 0 < len(examples.features) == len(examples.labels):
                lengths = f"{len(examples.features)} and {len(examples.labels)}"
                raise UserError(f"{self.name}: the {part} features and labels must have the same length, got {lengths}")
            if examples is not None and not examples.labels.is_floating_point() and examples.labels.min() < 0:
                least = int(examples.labels.min())
                raise UserError(f"{self.name}: the {part} labels must be class numbers from 0 on, got {least}")
        if self.owners is not None:
            if len(self.owners) != self.train.size:
                raise UserError(
                    f"{self.name}: every training example must have one owner, got {len(self.owners)} owners"
                )
            held = np.bincount(self.owners, minlength=1)
            if not held.all():
                raise UserError(
                    f"{self.name}: every client must hold an example, and client {held.argmin()} holds none"
                )


@final
@dataclass(frozen=True)
class ClientsOnDemand:
    """What a `package.module:function` returns for clients that are too many to hold."""

    population: int
    client: Callable[[int], Any]  # a client's number 0 … population − 1 -> a pair (features, labels) or a torch dataset
    size: int | Callable[[int], int]  # examples of every client, or a client's number -> its examples
    classes: int | None  # None for a regression
    test: Any | None = None  # a pair or a torch dataset
    normalisation: Normalisation | None = None  # must be given for features of bytes
    version: str = ""  # another one whenever any client's data are others: a resume compares it

    def __post_init__(self) -> None:
        for name, least in (("population", 1), ("classes", 1), ("size", 1)):
            number = getattr(self, name)
            if not callable(number) and not (name == "classes" and number is None) and not is_count(number, least):
                raise UserError(f"ClientsOnDemand.{name} must be a whole number of at least {least}, got {number!r}")
        if not callable(self.client):
            raise UserError(f"ClientsOnDemand.client must be a function of a client's number, got {self.client!r}")
        if not isinstance(self.version, str):
            raise UserError(f"ClientsOnDemand.version must be a text, got {self.version!r}")


def is_count(number: Any, least: int) -> bool:
    try:
        return not isinstance(number, bool) and operator.index(number) >= least
    except TypeError:
        return False
