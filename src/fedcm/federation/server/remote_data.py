"""Data that lie at the sites: the server knows their terms and sizes, and has held-out examples of its own or none."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch

from fedcm.data.dataset import Examples
from fedcm.data.federated import Pick, prepare_examples
from fedcm.errors import UserError
from fedcm.federation.terms import Terms

_CPU = torch.device("cpu")
_KINDS = {"uint8": torch.uint8, "int64": torch.int64, "float32": torch.float32}


@final
@dataclass
class RemoteData:
    terms: Terms
    population: int
    held_out: Examples | None
    known_sizes: dict[int, int] = field(default_factory=dict)  # by client, as far as they have described themselves
    dtype: torch.dtype = torch.float32
    device: torch.device = _CPU
    layout: str = "channels_last"

    @property
    def test_size(self) -> int:
        return 0 if self.held_out is None else self.held_out.size

    @property
    def classes(self) -> int | None:
        return self.terms.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.terms.shape)

    def ready_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "RemoteData":
        return RemoteData(self.terms, self.population, self.held_out, self.known_sizes, dtype, device, layout)

    def checksums(self) -> dict[str, str]:
        """The sites' examples are their own: what is compared on a resume is what was agreed on, and the test set."""
        sums = {"terms": hashlib.sha256(json.dumps(self.terms.model_dump(), sort_keys=True).encode()).hexdigest()}
        if self.held_out is not None:
            for name, part in zip(("test_features", "test_labels"), self.held_out, strict=True):
                sums[name] = hashlib.sha256(part.contiguous().numpy().tobytes()).hexdigest()
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        return np.array([self.known_sizes.get(int(client), 1) for client in clients], dtype=np.int64)

    def client(self, client: int) -> Examples:
        """Two blank examples, to rehearse a step on: the server has no others."""
        features = torch.zeros((2, *self.terms.shape), dtype=_KINDS[self.terms.kind])
        return self._ready(Examples(features, torch.zeros(2, dtype=torch.int64 if self.classes else torch.float32)))

    def stacked(self, clients: Sequence[int]) -> Pick:
        raise UserError("sites train one by one, each on its own machine")

    def test(self, start: int, stop: int) -> Examples:
        assert self.held_out is not None
        return self._ready(Examples(self.held_out.features[start:stop], self.held_out.labels[start:stop]))

    def _ready(self, examples: Examples) -> Examples:
        return prepare_examples(examples, self.terms.normalisation, self.dtype, self.device, self.layout)
