"""Data that are stored at the sites: the server knows their terms and sizes, and may have test examples of its own."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import torch

from fedcm.data.dataset import Examples
from fedcm.data.federated import SelectExamples, get_input_shape, has_fixed_shapes, prepare_examples
from fedcm.data.structures.tree import iterate_tensors, rebuild_tree
from fedcm.errors import UserError
from fedcm.federation.shares import SiteShares
from fedcm.federation.terms import Terms, make_blank_rows

_CPU = torch.device("cpu")
_NO_SHARES = SiteShares()
_DTYPES = {"uint8": torch.uint8, "int64": torch.int64, "float32": torch.float32}


@final
@dataclass
class RemoteData:
    """The sites' data as the server sees them; see `fedcm.data.federated` for the methods."""

    terms: Terms
    population: int
    held_out: Examples | None
    validation: Examples | None = None
    known_sizes: dict[int, int] = field(default_factory=dict)  # by client: all examples, of sites that described them
    shares: SiteShares = _NO_SHARES  # of each site's examples, which it holds back
    dtype: torch.dtype = torch.float32
    device: torch.device = _CPU
    layout: str = "channels_last"

    @property
    def test_size(self) -> int:
        """Number of the server's test examples."""
        return 0 if self.held_out is None else self.held_out.size

    @property
    def validation_size(self) -> int:
        """Number of validation examples: of the server, or of the sites that described their data, at least 2."""
        if self.shares.validation is not None:
            return max(sum(map(self.shares.count_validation, self.known_sizes.values())), 2)
        return 0 if self.validation is None else self.validation.size

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a regression."""
        return self.terms.classes

    @property
    def input_shape(self) -> Any:
        """Shape of one example; a structure of shapes if there are several tensors."""
        return tuple(self.terms.shape) if self.terms.structure is None else get_input_shape(self._make_blank())

    @property
    def is_stackable(self) -> bool:
        """Whether features and labels are one tensor each; sites are never stacked."""
        return True

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether no sequences have unequal lengths."""
        return has_fixed_shapes(self._make_blank())

    def prepare_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "RemoteData":
        """Return the same data for another dtype, device or layout."""
        return replace(self, dtype=dtype, device=device, layout=layout)

    def checksums(self) -> dict[str, str]:
        """Return what a resume compares: checksums of the terms and of the server's own examples."""
        sums = {"terms": hashlib.sha256(json.dumps(self.terms.model_dump(), sort_keys=True).encode()).hexdigest()}
        for kind, examples in (("test", self.held_out), ("validation", self.validation)):
            for part, tree in examples._asdict().items() if examples is not None else ():
                for name, tensor in iterate_tensors(tree, f"{kind}_{part}"):
                    sums[name] = hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
        return sums

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """Return the number of training examples per client; 1 if it is not known yet."""
        known = (self.known_sizes.get(int(client), 1) for client in clients)
        return np.array([self.shares.count_training(size) for size in known], dtype=np.int64)

    def client(self, client: int) -> Examples:
        """Return two blank examples for the smoke test, because the server has no others."""
        return self._prepare(self._make_blank())

    def _make_blank(self) -> Examples:
        if self.terms.structure is not None:
            fields = (rebuild_tree(self.terms.structure[name], make_blank_rows) for name in Examples._fields)
            return Examples(*fields)
        features = torch.zeros((2, *self.terms.shape), dtype=_DTYPES[self.terms.kind])
        return Examples(features, torch.zeros(2, dtype=torch.int64 if self.classes else torch.float32))

    def reread_client(self, client: int, torch_seed: int) -> Examples:
        """Return blank examples, because the sites read their own."""
        return self.client(client)

    def stack_clients(self, clients: Sequence[int]) -> SelectExamples:
        """Raise UserError: sites train one by one."""
        raise UserError("sites cannot be stacked: each trains on its own machine")

    def test_slice(self, start: int, stop: int) -> Examples:
        """Return some of the server's test examples."""
        assert self.held_out is not None
        return self._prepare(self.held_out.slice(start, stop))

    def validation_slice(self, start: int, stop: int) -> Examples:
        """Return some of the server's validation examples; two blank ones if the validation data are at the sites."""
        if self.validation is None:
            return self.client(0)
        return self._prepare(self.validation.slice(start, stop))

    @property
    def has_client_tests(self) -> bool:
        """Whether sites hold back test data of their own."""
        return self.shares.tests is not None

    def list_tested_clients(self) -> np.ndarray:
        """Return the clients that may have test data of their own: all but those that are known to be too small."""
        known = [self.known_sizes.get(client) for client in range(self.population)]
        return np.flatnonzero([size is None or self.shares.count_tests(size) > 0 for size in known])

    def client_test(self, client: int) -> Examples:
        """Return two blank examples, because the server has no others."""
        return self.client(client)

    def _prepare(self, examples: Examples) -> Examples:
        return prepare_examples(examples, self.terms.normalisation, self.dtype, self.device, self.layout)
