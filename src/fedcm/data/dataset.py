"""What every data source gives: tensors as they lie on disk, and how to make them ready for a model."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor


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
