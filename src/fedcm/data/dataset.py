"""What every data source gives: tensors as they lie on disk, and how to make them ready for a model."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedcm.refusal import Refused


class Examples(NamedTuple):
    """Features (n, ...) and labels (n,): images are (n, channels, height, width)."""

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

    def __post_init__(self) -> None:
        for part, examples in (("train", self.train), ("test", self.test)):
            if examples is not None and not 0 < len(examples.features) == len(examples.labels):
                lengths = f"{len(examples.features)} and {len(examples.labels)}"
                raise Refused(f"{self.name}: the {part} features and labels must have the same length, got {lengths}")
        if self.owners is not None:
            if len(self.owners) != self.train.size:
                raise Refused(f"{self.name}: every training example must have one owner, got {len(self.owners)} owners")
            held = np.bincount(self.owners, minlength=1)
            if not held.all():
                raise Refused(f"{self.name}: every client must hold an example, and client {held.argmin()} holds none")
