import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from fedcm.data import Dataset, Examples, load
from fedcm.data.imported import as_examples, from_clients, from_given
from fedcm.errors import UserError

X, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2


class Listed(TorchDataset):
    def __init__(self, examples: list) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        return self.examples[index]


class Stream(IterableDataset):
    def __iter__(self):
        yield X[0], 0


def test_a_function_in_the_current_folder_gives_the_data(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_wards.py").write_text(
        "import numpy as np\n"
        "def load(): return [(np.ones((2, 3)), np.zeros(2, int)), (np.ones((1, 3)), np.ones(1, int))]\n"
        "def broken(): raise RuntimeError('no disk')\n"
        "number = 3\n"
    )
    data = load("my_wards:load")
    assert data.client_names == ("0", "1")
    assert data.owners is not None
    assert data.owners.tolist() == [0, 0, 1]
    with pytest.raises(UserError, match=r"my_wards:broken\(\) must give data, got RuntimeError: no disk"):
        load("my_wards:broken")
    with pytest.raises(UserError, match="must be a function"):
        load("my_wards:number")
    with pytest.raises(UserError, match="did you mean 'load'"):
        load("my_wards:lod")


@pytest.mark.parametrize(
    "form",
    [
        (X, Y),
        (X.double().numpy(), Y.numpy()),
        TensorDataset(X, Y),
        Listed([(x, int(y)) for x, y in zip(X, Y, strict=True)]),
        Listed([[x.numpy(), y] for x, y in zip(X, Y, strict=True)]),
        Examples(X, Y),
    ],
)
def test_all_forms_of_examples_are_the_same(form):
    features, labels = as_examples(form)
    assert torch.equal(features, X)
    assert features.dtype == torch.float32
    assert torch.equal(labels, Y)


def test_train_and_test_may_each_be_a_dataset_or_a_pair():
    data = from_given((TensorDataset(X, Y), (X[:2], Y[:2])))
    assert data.test is not None
    assert (data.train.size, data.test.size) == (6, 2)
    assert data.owners is None
    assert from_given((X, Y)).test is None
    assert from_given(TensorDataset(X, Y)).test is None
    assert from_given(((X, Y), None)).test is None


def test_clients_come_with_or_without_a_test_set():
    data = from_given(([(X, Y), TensorDataset(X[:1], Y[:1])], (X, Y)))
    assert data.owners is not None
    assert data.owners.tolist() == [0] * 6 + [1]
    assert data.test is not None
    named = from_clients([(X, Y), (X, Y)], names=["ann", "bob"])
    assert named.client_names == ("ann", "bob")
    assert named.test is None


def test_a_dataset_of_ours_is_taken_as_it_is():
    data = Dataset("mine", Examples(X, Y), None, classes=2)
    assert from_given(data) is data


def test_the_channels_of_a_tensor_are_where_torch_has_them_and_those_of_a_picture_at_the_end():
    assert as_examples((torch.zeros(6, 8, 16, 4), Y)).features.shape == (6, 8, 16, 4)
    assert as_examples((np.zeros((6, 8, 16, 4)), Y.numpy())).features.shape == (6, 4, 8, 16)
    picture = Image.fromarray(np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3))
    pictures = as_examples(Listed([(picture, 1)] * 2))
    assert pictures.features.shape == (2, 3, 8, 9)
    assert pictures.features.dtype == torch.uint8


def test_tensors_on_a_graph_and_in_half_precision_are_taken():
    assert torch.equal(as_examples((X.clone().requires_grad_(), Y)).features, X)
    assert as_examples((X.bfloat16(), Y)).features.dtype == torch.float32


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "must give a fedcm Dataset"),
        ((X, Y, X), "got a tuple of 3: Tensor, Tensor, Tensor"),
        ([], "at least one client"),
        ([X, Y], "client 0 must be a torch dataset"),
        (((X, Y), "test"), "the test set must be a torch dataset"),
        ([(X, Y), (X[:, :2], Y)], "clients 0 and 1 must have features of one shape"),
        ([(X, Y), Listed([])], "client 1: there must be at least one example"),
        (Listed([X[0]]), r"an example must be a pair \(x, y\), got Tensor at index 0"),
        (
            Listed([(X[0], 0), (X[0, :2], 0)]),
            r"examples must have one shape, got x \(3,\), y \(\) at index 0 and x \(2,\)",
        ),
        ((X, Y[:3]), "the same length, got 6 and 3"),
        (((Stream()), (X, Y)), "the training set must be a torch dataset with a length"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(given, told):
    with pytest.raises(UserError, match=told):
        from_given(given, name="mine")


def test_clients_must_have_a_name_each():
    with pytest.raises(UserError, match="one name of its own"):
        from_clients([(X, Y), (X, Y)], names=["ann", "ann"])
