"""A dataset in memory that several processes share."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples, Normalisation
from fedcm.data.federated import ArrayData
from fedcm.data.on_demand import OnDemandData
from fedcm.data.shared_memory import close_descriptors, open_shared_dataset, share_dataset

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randint(0, 256, (30, 3, 6, 5), dtype=torch.uint8, generator=GENERATOR)
WHOLE = Dataset(
    "made",
    Examples(IMAGES, torch.arange(30)),
    Examples(IMAGES[:7], torch.arange(7)),
    30,
    Normalisation((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)),
    np.repeat(np.arange(3), 10),
    ("ann", "bob", "eve"),
)
PARTS = [np.arange(10), np.arange(10, 30)]

needs_memfd = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no memfd")


@needs_memfd
@pytest.mark.parametrize(
    "original", [WHOLE, Dataset("plain", Examples(torch.randn(30, 2), torch.randn(30)), None, None)]
)
def test_the_shared_dataset_equals_the_original(original: Dataset) -> None:
    data, before = ArrayData(original, PARTS), ArrayData(original, PARTS)
    descriptors = share_dataset(data)
    opened = open_shared_dataset(descriptors[0])
    close_descriptors(descriptors)
    for one, other in ((data.dataset, original), (opened, original)):
        assert (one.name, one.classes, one.normalisation) == (other.name, other.classes, other.normalisation)
        assert one.client_names == other.client_names
        assert np.array_equal(
            one.owners if one.owners is not None else [], other.owners if other.owners is not None else []
        )
    assert ArrayData(opened, PARTS).checksums() == before.checksums() == data.checksums()
    for client in (0, 1):
        for shared_part, part in zip(data.client(client), before.client(client), strict=True):
            assert torch.equal(shared_part, part)


@needs_memfd
def test_writing_to_shared_data_does_not_change_other_processes() -> None:
    descriptors = share_dataset(data := ArrayData(WHOLE, PARTS))
    other = open_shared_dataset(descriptors[0])
    close_descriptors(descriptors)
    data.dataset.train.features.zero_()
    assert torch.equal(other.train.features, IMAGES)


def test_mapped_data_and_clients_on_demand_are_not_shared(tmp_path: Path) -> None:
    mapped = Dataset("mapped", WHOLE.train, None, 30, mapped=True)
    assert share_dataset(ArrayData(mapped, PARTS)) == ()
    clients = ClientsOnDemand(9, lambda number: (np.ones((2, 3)), np.zeros(2, int)), 2, 2)
    assert share_dataset(OnDemandData(clients)) == ()


def test_nothing_is_shared_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    data = ArrayData(WHOLE, PARTS)
    assert share_dataset(data) == ()
    assert data.dataset is WHOLE
