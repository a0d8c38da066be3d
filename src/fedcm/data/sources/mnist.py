"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28 × 28, 10 classes, in the idx format.

An idx file is 0, 0, 8 (bytes), the number of dimensions, each dimension as a big-endian uint32, then the bytes. The
files are read as they are published, with or without .gz, and the md5 of the idx content must be the published one.

LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998.
Xiao, Rasul, Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms", 2017.
"""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedcm.data.checksum import md5, sha256
from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.errors import UserError


class IdxFile(NamedTuple):
    shape: tuple[int, ...]
    content_md5: str
    gz_md5: str


@dataclass(frozen=True)
class Mnist:
    name: str
    folders: tuple[str, ...]  # where in the data folder its files may lie: our own place, then torchvision's
    addresses: tuple[str, ...]
    normalisation: Normalisation
    files: dict[str, IdxFile]


KNOWN = {
    "mnist": Mnist(
        name="mnist",
        folders=("mnist", "MNIST/raw"),
        addresses=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        normalisation=Normalisation(mean=(0.1307,), std=(0.3081,)),
        files={
            "train-images-idx3-ubyte": IdxFile(
                (60_000, 28, 28), "6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"
            ),
            "train-labels-idx1-ubyte": IdxFile(
                (60_000,), "a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"
            ),
            "t10k-images-idx3-ubyte": IdxFile(
                (10_000, 28, 28), "2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"
            ),
            "t10k-labels-idx1-ubyte": IdxFile(
                (10_000,), "27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"
            ),
        },
    ),
    "fashion-mnist": Mnist(
        name="fashion-mnist",
        folders=("fashion-mnist", "FashionMNIST/raw"),
        addresses=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        normalisation=Normalisation(mean=(0.2860,), std=(0.3530,)),
        files={
            "train-images-idx3-ubyte": IdxFile(
                (60_000, 28, 28), "f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"
            ),
            "train-labels-idx1-ubyte": IdxFile(
                (60_000,), "9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"
            ),
            "t10k-images-idx3-ubyte": IdxFile(
                (10_000, 28, 28), "8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"
            ),
            "t10k-labels-idx1-ubyte": IdxFile(
                (10_000,), "15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"
            ),
        },
    ),
}


def load_mnist(data_dir: Path) -> Dataset:
    return load(KNOWN["mnist"], data_dir)


def load_fashion_mnist(data_dir: Path) -> Dataset:
    return load(KNOWN["fashion-mnist"], data_dir)


def load(known: Mnist, data_dir: Path) -> Dataset:
    """The four idx files from the data folder; their images as bytes (n, 1, 28, 28)."""
    folder = found([data_dir / folder for folder in known.folders], known)
    if folder is None:
        raise UserError(
            f"{known.name} must be in {data_dir / known.folders[0]}, got none; run `fedcm data prepare {known.name}`"
        )
    arrays = read(folder, known)
    train_images, train_labels, test_images, test_labels = (torch.from_numpy(array) for array in arrays)
    names = ("train_features", "train_labels", "test_features", "test_labels")
    return Dataset(
        known.name,
        train=Examples(train_images[:, None], train_labels.long()),
        test=Examples(test_images[:, None], test_labels.long()),
        classes=10,
        normalisation=known.normalisation,
        checksums={name: sha256(array) for name, array in zip(names, arrays, strict=True)},
    )


def found(folders: list[Path], known: Mnist) -> Path | None:
    """The first folder with all four files."""
    return next((folder for folder in folders if all(place(folder, name) for name in known.files)), None)


def place(folder: Path, name: str) -> Path | None:
    """The idx file, with or without .gz."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def read(folder: Path, known: Mnist) -> list[np.ndarray]:
    """Training images and labels, test images and labels, each the published one or refused."""
    return [read_idx(file, known.files[name]) for name in known.files if (file := place(folder, name)) is not None]


def read_idx(file: Path, expected: IdxFile) -> np.ndarray:
    """The array of one idx file of bytes."""
    header = bytes((0, 0, 8, len(expected.shape))) + np.array(expected.shape, ">u4").tobytes()
    size = len(header) + int(np.prod(expected.shape))
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            content = opened.read(size + 1)  # one more than there should be tells a file that is too long
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}; move it away and fetch it anew") from error
    if len(content) != size or not content.startswith(header):
        got = "more" if len(content) > size else f"{len(content):,}" if len(content) < size else "another header"
        raise UserError(
            f"{file} must be an idx file of bytes of shape {expected.shape}, {size:,} bytes in all, got {got}; "
            "move it away and fetch it anew"
        )
    if md5(content) != expected.content_md5:
        raise UserError(
            f"{file} must have the content of md5 {expected.content_md5}, got {md5(content)}; it is another file"
        )
    return np.frombuffer(bytearray(content), np.uint8, offset=len(header)).reshape(expected.shape)
