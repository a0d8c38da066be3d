"""The user's .npz files: one file, or a folder with one file per client."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcm.data import load_dataset
from fedcm.errors import UserError

GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.normal(size=(10, 4)), np.arange(10) % 3
BYTES = GENERATOR.integers(0, 256, (10, 8, 9, 3), dtype=np.uint8)


def save_npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return str(path)


def test_floats_become_float32_and_integer_labels_become_classes(tmp_path):
    data = load_dataset(
        save_npz(tmp_path / "mine.npz", x_train=X, y_train=Y, x_test=X[:2], y_test=np.array([0, 4], np.uint8))
    )
    assert data.name == "mine"
    assert data.train.features.dtype == torch.float32
    assert np.array_equal(data.train.features.numpy(), X.astype(np.float32))
    assert data.train.labels.dtype == torch.int64
    assert data.test is not None
    assert data.test.size == 2
    assert data.classes == 5
    assert data.normalisation is None
    assert data.owners is None


def test_x_and_y_are_a_training_set_without_a_test_set(tmp_path):
    data = load_dataset(save_npz(tmp_path / "a.npz", x=X, y=Y))
    assert data.train.size == 10
    assert data.test is None


def test_float_labels_are_a_regression(tmp_path):
    data = load_dataset(save_npz(tmp_path / "a.npz", x=X, y=np.linspace(0, 1, 10)[:, None]))
    assert data.classes is None
    assert data.train.labels.dtype == torch.float32


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 4)])
def test_labels_keep_their_shape(tmp_path, shape):
    for labels in (np.zeros((10, *shape)), np.zeros((10, *shape), int)):
        assert load_dataset(save_npz(tmp_path / "a.npz", x=X, y=labels)).train.labels.shape == (10, *shape)


def test_wide_integers_stay_integers(tmp_path):
    data = load_dataset(save_npz(tmp_path / "a.npz", x=np.full((10, 4), 2**40), y=Y))
    assert data.train.features.dtype == torch.int64
    assert int(data.train.features[0, 0]) == 2**40


def test_images_become_channel_first_and_are_normalised_by_the_training_set(tmp_path):
    data = load_dataset(save_npz(tmp_path / "a.npz", x_train=BYTES, y_train=Y, x_test=BYTES[:1], y_test=Y[:1]))
    assert data.train.features.shape == (10, 3, 8, 9)
    assert data.train.features.is_contiguous()
    assert data.train.features[2, 1, 3, 4] == BYTES[2, 3, 4, 1]
    assert data.normalisation is not None
    assert data.normalisation.scale == 255
    scaled = BYTES.astype(np.float64) / 255
    assert data.normalisation.mean == pytest.approx(scaled.mean((0, 1, 2)), rel=1e-13)
    assert data.normalisation.std == pytest.approx(scaled.std((0, 1, 2)), rel=1e-13)


@pytest.mark.parametrize(
    ("features", "shape"),
    [
        (np.zeros((10, 8, 9), np.uint8), (1, 8, 9)),
        (np.zeros((10, 8, 9), np.float32), (8, 9)),
        (np.zeros((10, 3, 8, 9), np.uint8), (3, 8, 9)),
        (np.zeros((10, 8, 9, 1), np.float64), (1, 8, 9)),
        (np.zeros((10, 1, 5, 3), np.uint8), (1, 5, 3)),
        (np.zeros((10, 20), np.uint8), (20,)),
    ],
)
def test_shapes_are_interpreted(tmp_path, features, shape):
    assert load_dataset(save_npz(tmp_path / "a.npz", x=features, y=Y)).train.features.shape[1:] == shape


def test_flat_bytes_have_one_mean_and_constant_bytes_have_std_1(tmp_path):
    data = load_dataset(save_npz(tmp_path / "a.npz", x=np.full((10, 20), 51, np.uint8), y=Y))
    assert data.normalisation is not None
    assert data.normalisation.mean == (0.2,)
    assert data.normalisation.std == (1.0,)


def with_nan() -> np.ndarray:
    x = X.copy()
    x[3, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_trian": X, "y_train": Y}, "got no 'x_train' but x_trian, y_train; rename 'x_trian' to 'x_train'"),
        ({"x_train": X}, "got no 'y_train'"),
        ({}, "got no 'x_train' but nothing"),
        ({"x": X, "y": Y, "x_test": X}, "got no 'y_test'"),
        ({"x": X, "y": Y[:-1]}, "must have the same length, got 10 and 9"),
        ({"x": X[:0], "y": Y[:0]}, "at least one example"),
        ({"x": with_nan(), "y": Y}, r"must be finite as float32, got nan in example 3 \(1 such"),
        ({"x": X * 1e300, "y": Y}, "must be finite as float32, got"),
        ({"x": X, "y": Y - 1}, "labels must be 0 or more, got -1"),
        ({"x": X, "y": np.where(Y == 1, np.inf, 0.5)}, "labels must be finite"),
        ({"x": X, "y": Y.astype(str)}, "labels must be integers"),
        ({"x": X, "y": np.zeros((10, 0))}, r"labels must be \(examples,\) or \(examples, ...\), got shape \(10, 0\)"),
        ({"x": X, "y": Y + 10**9}, "class numbers 0, 1, 2, …, got 1000000002"),
        ({"x": X.astype(str), "y": Y}, "features must be numbers"),
        ({"x": X + 1j, "y": Y}, "features must be numbers"),
        ({"x": X[:, 0], "y": Y}, r"features must be \(examples, ...\), got shape \(10,\)"),
        ({"x": X, "y": Y, "x_test": X[:, 1:], "y_test": Y}, r"the test set must have features of one shape"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y / 2}, r"must have labels of one shape and type"),
        ({"x": np.array([{}] * 10), "y": Y}, "'x' must be an array of numbers, got Python objects"),
    ],
)
def test_unusable_arrays_are_rejected_with_the_reason(tmp_path, arrays, message):
    with pytest.raises(UserError, match=message):
        load_dataset(save_npz(tmp_path / "a.npz", **arrays))


def test_an_unreadable_npz_is_rejected_without_running_its_code(tmp_path, trap):
    path = tmp_path / "a.npz"
    with pytest.raises(UserError, match="but there is none"):
        load_dataset(str(path))
    save_npz(path, x=X, y=Y)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:-30], whole[:100], whole[:200] + b"x" * 20 + whole[220:], trap[0]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"cannot be read as an .npz file"):
            load_dataset(str(path))
    assert not trap[1].exists()
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(UserError, match="got a single array"):
        load_dataset(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(UserError, match=r"must contain arrays only, got the file 'notes.txt'"):
        load_dataset(str(path))


def test_a_folder_has_one_client_per_file_sorted_by_name(tmp_path):
    save_npz(tmp_path / "ward b.npz", x=X[:3], y=Y[:3])
    save_npz(tmp_path / "ward a.npz", x=X[3:], y=Y[3:])
    save_npz(tmp_path / "test.npz", x=X, y=Y)
    (tmp_path / ".ward c.npz").write_bytes(b"a file that is being written")
    data = load_dataset(str(tmp_path))
    assert data.client_names == ("ward a", "ward b")
    assert data.owners is not None
    assert data.owners.tolist() == [0] * 7 + [1] * 3
    assert data.train.labels.tolist() == Y[3:].tolist() + Y[:3].tolist()
    assert data.test is not None
    assert data.test.size == 10


def test_incompatible_clients_are_rejected_by_name(tmp_path):
    with pytest.raises(UserError, match=r"must contain one .npz file per client"):
        load_dataset(str(tmp_path))
    save_npz(tmp_path / "ann.npz", x=X, y=Y)
    save_npz(tmp_path / "bob.npz", x=X[:, :3], y=Y)
    with pytest.raises(
        UserError, match=r"ann and bob must have features of one shape and type, got \(4,\).* and \(3,\)"
    ):
        load_dataset(str(tmp_path))
    save_npz(tmp_path / "bob.npz", x=X, y=Y / 2)
    with pytest.raises(UserError, match="ann and bob must have labels of one shape and type"):
        load_dataset(str(tmp_path))
    save_npz(tmp_path / "bob.npz", x=X[:0], y=Y[:0])
    with pytest.raises(UserError, match=r"bob.npz.*at least one example"):
        load_dataset(str(tmp_path))
