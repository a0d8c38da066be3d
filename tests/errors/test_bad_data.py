"""Data that cannot be used are refused in one sentence with code 2."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import Fedcm, Write, arrays, cases, refused
from scenes import write_npz


def with_nan() -> np.ndarray:
    x = np.zeros((40, 6), np.float32)
    x[3, 1] = np.nan
    return x


def one_hot(kind: type) -> dict[str, np.ndarray]:
    classes = np.eye(4, dtype=kind)
    return {"y_train": classes[np.arange(40) % 4], "y_test": classes[np.arange(8) % 4]}


@pytest.mark.parametrize(
    ("changes", "said"),
    cases(
        ("no labels", {"y_train": None}, "must have the arrays x_train and y_train, got no 'y_train'"),
        ("another name", {"x_train": None, "xtrain": np.zeros((40, 6))}, "rename 'xtrain' to 'x_train'"),
        ("half a test set", {"y_test": None}, "got no 'y_test'"),
        ("objects", {"y_train": np.array([{}] * 40, object)}, "'y_train' must be an array of numbers"),
        ("texts", {"y_train": np.array(["cat"] * 40)}, "labels must be integers (or floats for a regression)"),
        ("complex numbers", {"x_train": np.zeros((40, 6), complex)}, "features must be numbers"),
        ("a nan", {"x_train": with_nan()}, "features must be finite as float32, got nan in example 3"),
        ("an infinite label", {"y_train": np.full(40, np.inf)}, "labels must be finite"),
        ("lengths that differ", {"y_train": np.arange(39) % 4}, "must have the same length, got 40 and 39"),
        ("negative labels", {"y_train": np.arange(40) % 4 - 1}, "labels must be 0 or more, got -1"),
        ("identity numbers", {"y_train": np.arange(40) + 10**9}, "labels must be the classes' numbers"),
        ("labels past 63 bits", {"y_train": np.full(40, 2**64 - 1, np.uint64)}, "labels must be"),
        ("one-hot labels", one_hot(float), "for one-hot labels give their argmax"),
        ("whole one-hot labels", one_hot(int), "for one-hot labels give their argmax"),
        ("flat features", {"x_train": np.zeros(40)}, "features must be (examples, ...), got shape (40,)"),
        ("nothing", {"x_train": np.zeros((0, 6)), "y_train": np.zeros(0, int)}, "at least one example"),
        ("another test shape", {"x_test": np.zeros((8, 5), np.float32)}, "of one shape and kind"),
        ("another test kind", {"y_test": np.zeros(8)}, "of one shape and kind, got () int64 and () float32"),
        ("a regression split by label", {"y_train": np.zeros(40), "y_test": np.zeros(8)}, "'iid' or 'natural'"),
        (
            "token numbers for a dense model",
            {"x_train": np.zeros((40, 6), int), "x_test": np.zeros((8, 6), int)},
            "float",
        ),
    ),
)
def test_arrays_that_cannot_be_used_are_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "mine.npz", **arrays(**changes))
    refused(run(experiment(data={"source": "mine.npz"})), said)
    assert not (tmp_path / "runs").exists()


def npy_header(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def zipped(**members: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)

    return write


def cut(path: Path) -> None:
    write_npz(path)
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path: Path) -> None:
    write_npz(path)
    raw = bytearray(path.read_bytes())
    raw[2000] ^= 255
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("damage", "said"),
    cases(
        ("not there", lambda path: None, "mine.npz', got nothing there"),
        ("empty", lambda path: path.write_bytes(b""), "cannot be read as an .npz; write it with numpy.savez"),
        ("junk", lambda path: path.write_bytes(b"PK\x03\x04 junk"), "cannot be read as an .npz"),
        ("a text", lambda path: path.write_text("x,y\n1,2\n"), "cannot be read as an .npz"),
        ("cut off", cut, "cannot be read as an .npz"),
        ("a flipped byte", flipped, "cannot be read as an .npz"),
        ("one array", lambda path: np.save(path.open("wb"), np.zeros(3)), "got a single array"),
        ("a folder", lambda path: path.mkdir(), "there must be an .npz file"),
        ("not arrays", zipped(x_train=b"hello", y_train=b"there"), "mine.npz"),
        ("a header that lies", zipped(x_train=npy_header("(1000000000000, 6)")), "cannot be read as an .npz"),
        ("a header without sense", zipped(x_train=npy_header("(-1, 'six')")), "cannot be read as an .npz"),
    ),
)
def test_a_damaged_npz_is_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(tmp_path / "mine.npz")
    refused(run(experiment(data={"source": "mine.npz"})), said)


def client(**changes: Any) -> dict[str, Any]:
    return {"x": np.zeros((5, 6), np.float32), "y": np.arange(5) % 4} | changes


@pytest.mark.parametrize(
    ("files", "said"),
    cases(
        ("empty", {}, "must hold one .npz a client (keys x, y), got none"),
        ("only a test set", {"test": client()}, "must hold one .npz a client"),
        ("shapes that differ", {"ann": client(), "bob": client(x=np.zeros((5, 7), np.float32))}, "ann and bob must"),
        ("kinds that differ", {"ann": client(), "bob": client(y=np.zeros(5))}, "ann and bob must have labels"),
        ("a client without labels", {"ann": client(), "bob": {"x": np.zeros((5, 6))}}, "must have the arrays x and y"),
        ("a client without data", {"ann": client(), "bob": client(x=np.zeros((0, 6)), y=np.zeros(0, int))}, "bob.npz"),
        ("a test set of another shape", {"ann": client(), "test": client(x=np.zeros((5, 7), np.float32))}, "test set"),
    ),
)
def test_a_folder_of_clients_that_do_not_fit_is_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, files: dict[str, Any], said: str
) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, content in files.items():
        np.savez(folder / name, **content)
    refused(run(experiment(data={"source": "clients"}, split={"kind": "natural"})), said)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
def test_data_that_are_not_prepared_are_refused(run: Fedcm, experiment: Write, tmp_path: Path, name: str) -> None:
    answer = run(experiment(data={"source": name}), "--data-dir", tmp_path / "data")
    refused(answer, f"run `fedcm data prepare {name}`")


def test_prepared_data_that_are_not_the_published_ones_are_refused(
    run: Fedcm, experiment: Write, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    for part, size in (("train", 50), ("test", 10)):
        np.save(folder / f"{part}_images.npy", np.zeros((size, 3072), np.uint8))
        np.save(folder / f"{part}_labels.npy", np.zeros(size, np.uint8))
    path = experiment(data={"source": "cifar10"})
    refused(run(path, "--data-dir", "data"), "the train images must be the published ones, got others")
    (folder / "train_images.npy").write_bytes(b"junk")
    refused(run(path, "--data-dir", "data"), "cannot be read")


def other_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "something/else.py")


@pytest.mark.parametrize(
    ("name", "make", "said"),
    cases(
        ("nothing there", "cifar10", lambda path: None, "there must be an archive or a folder at given, got nothing"),
        ("a text", "cifar10", lambda path: path.write_text("hello"), "cannot be read as a .tar.gz"),
        ("another archive", "cifar10", other_archive, "must hold data_batch_1, got none"),
        ("an empty folder", "cifar100", lambda path: path.mkdir(), "must hold train, got none"),
        ("a file for a folder", "mnist", lambda path: path.write_text("hello"), "must be a folder with train-images"),
        ("an empty folder of idx", "mnist", lambda path: path.mkdir(), "must be a folder with train-images"),
        ("an unknown name", "cifar", lambda path: path.mkdir(), "did you mean 'cifar10'?"),
    ),
)
def test_a_wrong_archive_is_refused(
    fedcm: Fedcm, tmp_path: Path, name: str, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path / "given")
    answer = fedcm("data", "prepare", name, "--from", "given", "--data-dir", "data", "--offline")
    refused(answer, said, informed=r"cifar\d+: reading given")


def test_data_that_can_only_come_from_the_network_are_refused_offline(fedcm: Fedcm) -> None:
    answer = fedcm("data", "prepare", "cifar10", "--offline", "--data-dir", "data")
    refused(answer, "`fedcm data prepare cifar10 --from PATH`")


def test_a_data_folder_that_is_a_file_is_refused(fedcm: Fedcm, npz: Path) -> None:
    refused(fedcm("data", "prepare", "cifar10", "--offline", "--data-dir", npz), "must be written to")
