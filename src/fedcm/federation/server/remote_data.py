"""Data that are stored at the sites: the server knows their terms and sizes, and may have test examples of its own."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch

from fedcm.data.dataset import Examples
from fedcm.data.federated import SelectExamples, prepare_examples
from fedcm.errors import UserError
from fedcm.federation.terms import Terms

_CPU = torch.device("cpu")
_DTYPES = {"uint8": torch.uint8, "int64": torch.int64, "float32": torch.float32}


@final
@dataclass
class RemoteData:
    """The sites' data as the server sees them; see `fedcm.data.federated` for the methods."""

    terms: Terms
    population: int
    held_out: Examples | None
    known_sizes: dict[int, int] = field(default_factory=dict)  # by client, of the sites that described themselves
    dtype: torch.dtype = torch.float32
    device: torch.device = _CPU
    layout: str = "channels_last"

    @property
    def test_size(self) -> int:
        """Number of the server's test examples."""
        return 0 if self.held_out is None else self.held_out.size

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a regression."""
        return self.terms.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.terms.shape)

    def prepare_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "RemoteData":
        """Return the same data for another dtype, device or layout."""
        return RemoteData(self.terms, self.population, self.held_out, self.known_sizes, dtype, device, layout)

    def checksums(self) -> dict[str, str]:
        """Return what a resume compares: checksums of the terms and of the test examples, not of the sites' data."""
        sums = {"terms": hashlib.sha256(json.dumps(self.terms.model_dump(), sort_keys=True).encode()).hexdigest()}
        if self.held_out is not None:
            for name, part in zip(("test_features", "test_labels"), self.held_out, strict=True):
                sums[name] = hashlib.sha256(part.contiguous().numpy().tobytes()).hexdigest()
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """Return the number of examples per client; 1 if it is not known yet."""
        return np.array([self.known_sizes.get(int(client), 1) for client in clients], dtype=np.int64)

    def client(self, client: int) -> Examples:
        """Return two blank examples for the smoke test, because the server has no others."""
        features = torch.zeros((2, *self.terms.shape), dtype=_DTYPES[self.terms.kind])
        return self._prepare(Examples(features, torch.zeros(2, dtype=torch.int64 if self.classes else torch.float32)))

    def stack_clients(self, clients: Sequence[int]) -> SelectExamples:
        """Raise UserError: sites train one by one."""
        raise UserError("sites cannot be stacked: each trains on its own machine")

    def test_slice(self, start: int, stop: int) -> Examples:
        """Return some of the server's test examples."""
        assert self.held_out is not None
        return self._prepare(Examples(self.held_out.features[start:stop], self.held_out.labels[start:stop]))

    def _prepare(self, examples: Examples) -> Examples:
        return prepare_examples(examples, self.terms.normalisation, self.dtype, self.device, self.layout)
