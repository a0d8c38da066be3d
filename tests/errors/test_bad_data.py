"""Unusable data are rejected in one sentence with code 2."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_errors import Fedcm, Write, assert_rejected, make_arrays, make_params
from scenes import write_npz


def make_nan() -> np.ndarray:
    x = np.zeros((40, 6), np.float32)
    x[3, 1] = np.nan
    return x


def make_one_hot(kind: type) -> dict[str, np.ndarray]:
    classes = np.eye(4, dtype=kind)
    return {"y_train": classes[np.arange(40) % 4], "y_test": classes[np.arange(8) % 4]}


@pytest.mark.parametrize(
    ("changes", "message"),
    make_params(
        ("no labels", {"y_train": None}, "must have the arrays x_train and y_train, got no 'y_train'"),
        ("another name", {"x_train": None, "xtrain": np.zeros((40, 6))}, "rename 'xtrain' to 'x_train'"),
        ("half a test set", {"y_test": None}, "got no 'y_test'"),
        ("objects", {"y_train": np.array([{}] * 40, object)}, "'y_train' must be an array of numbers"),
        ("strings", {"y_train": np.array(["cat"] * 40)}, "labels must be integers (or floats for a regression)"),
        ("complex numbers", {"x_train": np.zeros((40, 6), complex)}, "features must be numbers"),
        ("a nan", {"x_train": make_nan()}, "features must be finite as float32, got nan in example 3"),
        ("an infinite label", {"y_train": np.full(40, np.inf)}, "labels must be finite"),
        ("lengths that differ", {"y_train": np.arange(39) % 4}, "must have the same length, got 40 and 39"),
        ("negative labels", {"y_train": np.arange(40) % 4 - 1}, "labels must be 0 or more, got -1"),
        ("identifiers", {"y_train": np.arange(40) + 10**9}, "labels must be class numbers"),
        ("labels past 63 bits", {"y_train": np.full(40, 2**64 - 1, np.uint64)}, "labels must be"),
        ("one-hot labels", make_one_hot(float), "for one-hot labels give their argmax"),
        ("whole one-hot labels", make_one_hot(int), "for one-hot labels give their argmax"),
        ("flat features", {"x_train": np.zeros(40)}, "features must be (examples, ...), got shape (40,)"),
        ("nothing", {"x_train": np.zeros((0, 6)), "y_train": np.zeros(0, int)}, "at least one example"),
        ("another test shape", {"x_test": np.zeros((8, 5), np.float32)}, "of one shape and type"),
        ("another test type", {"y_test": np.zeros(8)}, "of one shape and type, got () int64 and () float32"),
        ("a regression split by label", {"y_train": np.zeros(40), "y_test": np.zeros(8)}, "'iid' or 'natural'"),
        (
            "token ids for a dense model",
            {"x_train": np.zeros((40, 6), int), "x_test": np.zeros((8, 6), int)},
            "float",
        ),
    ),
)
def test_unusable_arrays_are_rejected(
    run: Fedcm, experiment: Write, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "mine.npz", **make_arrays(**changes))
    assert_rejected(run(experiment(data={"source": "mine.npz"})), message)
    assert not (tmp_path / "runs").exists()


def make_npy_header(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def make_zip_writer(**members: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)

    return write


def truncate(path: Path) -> None:
    write_npz(path)
    path.write_bytes(path.read_bytes()[:-200])


def flip_byte(path: Path) -> None:
    write_npz(path)
    raw = bytearray(path.read_bytes())
    raw[2000] ^= 255
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("damage", "message"),
    make_params(
        ("missing", lambda path: None, "mine.npz', but there is none"),
        ("empty", lambda path: path.write_bytes(b""), "cannot be read as an .npz file; write it with numpy.savez"),
        ("junk", lambda path: path.write_bytes(b"PK\x03\x04 junk"), "cannot be read as an .npz file"),
        ("a text file", lambda path: path.write_text("x,y\n1,2\n"), "cannot be read as an .npz file"),
        ("truncated", truncate, "cannot be read as an .npz file"),
        ("a flipped byte", flip_byte, "cannot be read as an .npz file"),
        ("one array", lambda path: np.save(path.open("wb"), np.zeros(3)), "got a single array"),
        ("a folder", lambda path: path.mkdir(), "must be a file, and it is a folder; give an .npz file"),
        ("not arrays", make_zip_writer(x_train=b"hello", y_train=b"there"), "mine.npz"),
        (
            "a header with a wrong shape",
            make_zip_writer(x_train=make_npy_header("(1000000000000, 6)")),
            "cannot be read as an .npz file",
        ),
        (
            "a malformed header",
            make_zip_writer(x_train=make_npy_header("(-1, 'six')")),
            "cannot be read as an .npz file",
        ),
    ),
)
def test_a_damaged_npz_is_rejected(
    run: Fedcm, experiment: Write, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(tmp_path / "mine.npz")
    assert_rejected(run(experiment(data={"source": "mine.npz"})), message)


def make_client(**changes: Any) -> dict[str, Any]:
    return {"x": np.zeros((5, 6), np.float32), "y": np.arange(5) % 4} | changes


@pytest.mark.parametrize(
    ("files", "message"),
    make_params(
        ("empty", {}, "must contain one .npz file per client (keys x, y), got none"),
        ("only a test set", {"test": make_client()}, "must contain one .npz file per client"),
        (
            "shapes that differ",
            {"ann": make_client(), "bob": make_client(x=np.zeros((5, 7), np.float32))},
            "ann and bob must",
        ),
        (
            "types that differ",
            {"ann": make_client(), "bob": make_client(y=np.zeros(5))},
            "ann and bob must have labels",
        ),
        (
            "a client without labels",
            {"ann": make_client(), "bob": {"x": np.zeros((5, 6))}},
            "must have the arrays x and y",
        ),
        (
            "a client without data",
            {"ann": make_client(), "bob": make_client(x=np.zeros((0, 6)), y=np.zeros(0, int))},
            "bob.npz",
        ),
        (
            "a test set of another shape",
            {"ann": make_client(), "test": make_client(x=np.zeros((5, 7), np.float32))},
            "test set",
        ),
    ),
)
def test_a_folder_of_incompatible_clients_is_rejected(
    run: Fedcm, experiment: Write, tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, content in files.items():
        np.savez(folder / name, **content)
    assert_rejected(run(experiment(data={"source": "clients"}, split={"kind": "natural"})), message)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist", "shakespeare"])
def test_unprepared_data_are_rejected(run: Fedcm, experiment: Write, tmp_path: Path, name: str) -> None:
    answer = run(experiment(data={"source": name}), "--data-dir", tmp_path / "data")
    assert_rejected(answer, f"run `fedcm data prepare {name}`")


def test_prepared_data_other_than_the_published_are_rejected(run: Fedcm, experiment: Write, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    for part, size in (("train", 50), ("test", 10)):
        np.save(folder / f"{part}_images.npy", np.zeros((size, 3072), np.uint8))
        np.save(folder / f"{part}_labels.npy", np.zeros(size, np.uint8))
    path = experiment(data={"source": "cifar10"})
    assert_rejected(run(path, "--data-dir", "data"), "the train images must be the published ones, got others")
    (folder / "train_images.npy").write_bytes(b"junk")
    assert_rejected(run(path, "--data-dir", "data"), "cannot be read")


def write_other_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "something/else.py")


@pytest.mark.parametrize(
    ("name", "make", "message"),
    make_params(
        ("missing", "cifar10", lambda path: None, "given must be an archive or a folder, but it does not exist"),
        ("a text file", "cifar10", lambda path: path.write_text("hello"), "cannot be read as a .tar.gz"),
        ("another archive", "cifar10", write_other_archive, "must contain data_batch_1, but does not"),
        ("an empty folder", "cifar100", lambda path: path.mkdir(), "must contain train, but does not"),
        ("a file for a folder", "mnist", lambda path: path.write_text("hello"), "must be a folder with train-images"),
        ("an empty folder of idx", "mnist", lambda path: path.mkdir(), "must be a folder with train-images"),
        ("an unknown name", "cifar", lambda path: path.mkdir(), "did you mean 'cifar10'?"),
    ),
)
def test_a_wrong_archive_is_rejected(
    fedcm: Fedcm, tmp_path: Path, name: str, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "given")
    answer = fedcm("data", "prepare", name, "--from", "given", "--data-dir", "data", "--offline")
    assert_rejected(answer, message, other_lines=r"cifar\d+: reading given")


def test_preparing_offline_without_local_files_is_rejected(fedcm: Fedcm) -> None:
    answer = fedcm("data", "prepare", "cifar10", "--offline", "--data-dir", "data")
    assert_rejected(answer, "`fedcm data prepare cifar10 --from PATH`")


def test_a_data_folder_that_is_a_file_is_rejected(fedcm: Fedcm, npz: Path) -> None:
    assert_rejected(fedcm("data", "prepare", "cifar10", "--offline", "--data-dir", npz), "cannot be written to")
