"""One site's examples as federated data, in which every client index returns this site's examples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch

from fedcm.data.client_tests import ClientTests
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData, SelectExamples
from fedcm.federation.shares import SiteParts
from fedcm.federation.terms import Terms


@final
@dataclass(frozen=True)
class SingleSiteData:
    """Presents one site's data as a federation; see `fedcm.data.federated` for the methods."""

    site_data: ArrayData
    population: int
    test_size: int = 0

    @property
    def validation_size(self) -> int:
        """Number of the site's examples that are held back for validation."""
        return self.site_data.validation_size

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a regression."""
        return self.site_data.classes

    @property
    def input_shape(self) -> Any:
        """Shape of one example; a structure of shapes if there are several tensors."""
        return self.site_data.input_shape

    @property
    def is_stackable(self) -> bool:
        """Whether features and labels are one tensor each."""
        return self.site_data.is_stackable

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether no sequences have unequal lengths."""
        return self.site_data.has_fixed_shapes

    def prepare_for(self, dtype: torch.dtype, device: torch.device, layout: str = "channels_last") -> "SingleSiteData":
        """Return the same data for another dtype, device or layout."""
        return replace(self, site_data=self.site_data.prepare_for(dtype, device, layout))

    def checksums(self) -> dict[str, str]:
        """Return the checksums of the site's examples."""
        return self.site_data.checksums()

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """Return the site's number of training examples for every client."""
        return np.full(len(clients), self.site_data.sizes(np.array([0]))[0], dtype=np.int64)

    def client(self, client: int) -> Examples:
        """Return the site's examples, whichever client is given."""
        return self.site_data.client(0)

    def reread_client(self, client: int, torch_seed: int) -> Examples:
        """Read the site's examples anew, whichever client is given."""
        return self.site_data.reread_client(0, torch_seed)

    def stack_clients(self, clients: Sequence[int]) -> SelectExamples:
        """Return the site's examples once per client."""
        return self.site_data.stack_clients([0] * len(clients))

    def test_slice(self, start: int, stop: int) -> Examples:
        """Return some of the test examples."""
        return self.site_data.test_slice(start, stop)

    def validation_slice(self, start: int, stop: int) -> Examples:
        """Return some of the validation examples."""
        return self.site_data.validation_slice(start, stop)

    @property
    def has_client_tests(self) -> bool:
        """Whether the site has test data of its own."""
        return self.site_data.has_client_tests

    def list_tested_clients(self) -> np.ndarray:
        """Return all clients, because every client index returns the site's test data."""
        return np.arange(self.population)

    def client_test(self, client: int) -> Examples:
        """Return the site's test examples, whichever client is given."""
        return self.site_data.client_test(0)


def make_single_site_data(data: Dataset, terms: Terms, population: int, parts: SiteParts) -> SingleSiteData:
    """Present a site's data with the run's classes and normalisation instead of the site's own.

    Args:
        data: The site's data.
        terms: The run's terms.
        population: The number of sites.
        parts: Which of the site's examples are for training, testing and validation.
    """
    on_terms = replace(
        data, test=None, validation=None, owners=None, classes=terms.classes, normalisation=terms.normalisation
    )
    own = ArrayData(
        on_terms,
        [parts.training],
        held_back=parts.validation if len(parts.validation) else None,
        client_tests=ClientTests([parts.tests]) if len(parts.tests) else None,
    )
    return SingleSiteData(own, population)
