"""Data from the user's own function, in all forms that it may return."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from fedcm.data import Dataset, Examples, load_dataset
from fedcm.data.user_data import convert_clients_to_dataset, convert_to_dataset, convert_to_examples
from fedcm.errors import UserError

X, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2


class ListDataset(TorchDataset):
    def __init__(self, examples: list) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        return self.examples[index]


class StreamDataset(IterableDataset):
    def __iter__(self):
        yield X[0], 0


def test_a_function_in_the_current_folder_provides_the_data(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_wards.py").write_text(
        "import numpy as np\n"
        "def load(): return [(np.ones((2, 3)), np.zeros(2, int)), (np.ones((1, 3)), np.ones(1, int))]\n"
        "def broken(): raise RuntimeError('no disk')\n"
        "number = 3\n"
    )
    data = load_dataset("my_wards:load")
    assert data.client_names == ("0", "1")
    assert data.owners is not None
    assert data.owners.tolist() == [0, 0, 1]
    with pytest.raises(UserError, match=r"my_wards:broken\(\) must return data, got RuntimeError: no disk"):
        load_dataset("my_wards:broken")
    with pytest.raises(UserError, match="must be a function"):
        load_dataset("my_wards:number")
    with pytest.raises(UserError, match="did you mean 'load'"):
        load_dataset("my_wards:lod")


@pytest.mark.parametrize(
    "form",
    [
        (X, Y),
        (X.double().numpy(), Y.numpy()),
        TensorDataset(X, Y),
        ListDataset([(x, int(y)) for x, y in zip(X, Y, strict=True)]),
        ListDataset([[x.numpy(), y] for x, y in zip(X, Y, strict=True)]),
        Examples(X, Y),
    ],
)
def test_all_forms_of_examples_convert_to_the_same_tensors(form):
    features, labels = convert_to_examples(form)
    assert torch.equal(features, X)
    assert features.dtype == torch.float32
    assert torch.equal(labels, Y)


def test_train_and_test_may_each_be_a_dataset_or_a_pair():
    data = convert_to_dataset((TensorDataset(X, Y), (X[:2], Y[:2])))
    assert data.test is not None
    assert (data.train.size, data.test.size) == (6, 2)
    assert data.owners is None
    assert convert_to_dataset((X, Y)).test is None
    assert convert_to_dataset(TensorDataset(X, Y)).test is None
    assert convert_to_dataset(((X, Y), None)).test is None


def test_clients_come_with_or_without_a_test_set():
    data = convert_to_dataset(([(X, Y), TensorDataset(X[:1], Y[:1])], (X, Y)))
    assert data.owners is not None
    assert data.owners.tolist() == [0] * 6 + [1]
    assert data.test is not None
    named = convert_clients_to_dataset([(X, Y), (X, Y)], names=["ann", "bob"])
    assert named.client_names == ("ann", "bob")
    assert named.test is None


def test_a_fedcm_dataset_is_used_unchanged():
    data = Dataset("mine", Examples(X, Y), None, classes=2)
    assert convert_to_dataset(data) is data


def test_tensors_are_channel_first_and_arrays_and_images_channel_last():
    assert convert_to_examples((torch.zeros(6, 8, 16, 4), Y)).features.shape == (6, 8, 16, 4)
    assert convert_to_examples((np.zeros((6, 8, 16, 4)), Y.numpy())).features.shape == (6, 4, 8, 16)
    picture = Image.fromarray(np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3))
    pictures = convert_to_examples(ListDataset([(picture, 1)] * 2))
    assert pictures.features.shape == (2, 3, 8, 9)
    assert pictures.features.dtype == torch.uint8


def test_tensors_that_require_gradients_or_are_bfloat16_are_accepted():
    assert torch.equal(convert_to_examples((X.clone().requires_grad_(), Y)).features, X)
    assert convert_to_examples((X.bfloat16(), Y)).features.dtype == torch.float32


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "must return a fedcm Dataset"),
        ((X, Y, X), "got a tuple of 3: Tensor, Tensor, Tensor"),
        ([], "at least one client"),
        ([X, Y], "client 0 must be a torch dataset"),
        (((X, Y), "test"), "the test set must be a torch dataset"),
        ([(X, Y), (X[:, :2], Y)], "clients 0 and 1 must have features of one shape"),
        ([(X, Y), ListDataset([])], "client 1: there must be at least one example"),
        (
            ListDataset([X[0]]),
            r"an example must be a pair \(x, y\) or a dict with the key 'labels', got Tensor at index 0",
        ),
        (
            ListDataset([(X[0], 0), (X[0, :2], 0)]),
            "examples must have one shape, got vectors of 3 numbers in example 0 and of 2 in example 1",
        ),
        ((X, Y[:3]), "the same length, got 6 and 3"),
        (((StreamDataset()), (X, Y)), "the training set must be a torch dataset with a length"),
    ],
)
def test_unusable_data_are_rejected_with_the_reason(value, message):
    with pytest.raises(UserError, match=message):
        convert_to_dataset(value, name="mine")


def test_clients_must_have_different_names():
    with pytest.raises(UserError, match="must have its own name, got 1 different names for 2 clients"):
        convert_clients_to_dataset([(X, Y), (X, Y)], names=["ann", "ann"])
