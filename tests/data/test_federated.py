"""A dataset split over clients: each client's examples, converted for the model when they are requested."""

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.data.federated import ArrayData

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randint(0, 256, (30, 3, 6, 5), dtype=torch.uint8, generator=GENERATOR)
SCALE = Normalisation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
DATASET = Dataset("made", Examples(IMAGES, torch.arange(30)), Examples(IMAGES[:7], torch.arange(7)), 30, SCALE)
PARTS = [np.array([4, 2, 9]), np.array([0]), np.array([29, 28, 27, 1])]


def test_a_client_holds_its_own_examples_and_no_others() -> None:
    data = ArrayData(DATASET, PARTS)
    assert data.population == 3
    assert data.sizes(np.array([2, 0])).tolist() == [4, 3]
    for client, part in enumerate(PARTS):
        assert data.client(client).labels.tolist() == part.tolist()


def test_bytes_become_normalised_floats() -> None:
    features = ArrayData(DATASET, PARTS).client(2).features
    mean, std = (torch.tensor(values)[:, None, None] for values in (SCALE.mean, SCALE.std))
    torch.testing.assert_close(features, (IMAGES[PARTS[2]].float() / 255 - mean) / std)


def test_the_test_set_is_normalised_like_the_training_set() -> None:
    data = ArrayData(DATASET, [np.arange(30)])
    assert torch.equal(data.test_slice(2, 5).features, data.client(0).features[2:5])
    assert data.test_size == 7


def test_images_and_their_batches_are_channels_last() -> None:
    features = ArrayData(DATASET, PARTS).client(2).features
    assert features.is_contiguous(memory_format=torch.channels_last)
    assert features[torch.tensor([2, 0])].is_contiguous(memory_format=torch.channels_last)


def test_floats_are_not_normalised_by_default_and_token_ids_stay_integers() -> None:
    floats, tokens = torch.randn(4, 2), torch.tensor([[3, 4], [5, 6], [7, 8], [9, 10]])
    for features, dtype in ((floats, torch.float64), (tokens, torch.int64)):
        data = ArrayData(Dataset("made", Examples(features, torch.arange(4)), None, 4), [np.arange(4)], torch.float64)
        assert data.client(0).features.dtype == dtype
        assert torch.equal(data.client(0).features, features.to(dtype))
        assert data.test_size == 0


def test_the_checksums_change_with_the_data_and_with_the_split() -> None:
    changed = IMAGES.clone()
    changed[3, 0, 0, 0] ^= 1
    checksums = [
        ArrayData(DATASET, PARTS).checksums(),
        ArrayData(Dataset("made", Examples(changed, torch.arange(30)), DATASET.test, 30, SCALE), PARTS).checksums(),
        ArrayData(DATASET, [PARTS[0], np.array([0, 29]), PARTS[2][1:]]).checksums(),
    ]
    assert checksums[0] == ArrayData(DATASET, PARTS).checksums()
    assert checksums[0]["train_features"] != checksums[1]["train_features"]
    assert checksums[0]["split"] == checksums[1]["split"] != checksums[2]["split"]


def test_a_stack_of_clients_selects_from_each_clients_examples() -> None:
    data = ArrayData(DATASET, PARTS)
    index = torch.tensor([[3, 1], [2, 0]])
    features, labels = data.stack_clients([2, 0])(index)
    for row, client in enumerate((2, 0)):
        own = data.client(client)
        assert torch.equal(features[row], own.features[index[row]])
        assert torch.equal(labels[row], own.labels[index[row]])


def test_images_can_be_contiguous() -> None:
    data = ArrayData(DATASET, PARTS).prepare_for(torch.float32, torch.device("cpu"), "contiguous")
    assert data.client(2).features.is_contiguous()
    assert torch.equal(data.client(2).features, ArrayData(DATASET, PARTS).client(2).features)
