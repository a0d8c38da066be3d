"""A site's examples as the data of a federation of which it is one client: whoever is asked for, it is this one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData, Pick
from fedcm.federation.terms import Terms


@final
@dataclass(frozen=True)
class OwnData:
    own: ArrayData
    population: int
    test_size: int = 0

    @property
    def classes(self) -> int | None:
        return self.own.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.own.input_shape

    def ready_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "OwnData":
        return replace(self, own=self.own.ready_for(dtype, device, layout))

    def checksums(self) -> dict[str, str]:
        return self.own.checksums()

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return np.full(len(clients), self.own.train.size, dtype=np.int64)

    def client(self, client: int) -> Examples:
        return self.own.client(0)

    def stacked(self, clients: Sequence[int]) -> Pick:
        return self.own.stacked([0] * len(clients))

    def test(self, start: int, stop: int) -> Examples:
        return self.own.test(start, stop)


def own_data(data: Dataset, terms: Terms, population: int) -> OwnData:
    """On the terms of the run: its classes and its normalisation rather than this site's."""
    on_terms = replace(data, test=None, owners=None, classes=terms.classes, normalisation=terms.normalisation)
    return OwnData(ArrayData(on_terms, [np.arange(data.train.size)]), population)
