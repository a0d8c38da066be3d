"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28 × 28 pixels, 10 classes, in the idx format.

An idx file contains 0, 0, 8 (for bytes), the number of dimensions, each dimension as a big-endian uint32, then the
values. The files are read as they are published, with or without .gz. The md5 of the content must be the published one.

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

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.errors import UserError
from fedcm.system.checksum import compute_md5, compute_sha256

SYSTEM_DATASETS = Path("/usr/share/datasets")


class IdxFile(NamedTuple):
    """One published file: the shape of its array, and the md5 of its content without and with .gz."""

    shape: tuple[int, ...]
    content_md5: str
    gz_md5: str


@dataclass(frozen=True)
class MnistSpec:
    """The published facts of one of the two datasets, and where its files are."""

    name: str
    folders: tuple[str, ...]  # where its files may be in the data folder: fedcm's own place, then torchvision's
    addresses: tuple[str, ...]
    normalisation: Normalisation
    files: dict[str, IdxFile]
    system_package: str | None = None  # a Debian package that installs the files in `system_folder`

    @property
    def system_folder(self) -> Path:
        """Where the Debian package installs the files."""
        return SYSTEM_DATASETS / self.name


MNIST_SPECS = {
    "mnist": MnistSpec(
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
    "fashion-mnist": MnistSpec(
        name="fashion-mnist",
        folders=("fashion-mnist", "FashionMNIST/raw"),
        addresses=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        normalisation=Normalisation(mean=(0.2860,), std=(0.3530,)),
        system_package="dataset-fashion-mnist",
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
    """Load MNIST from the data folder."""
    return _load(MNIST_SPECS["mnist"], data_dir)


def load_fashion_mnist(data_dir: Path) -> Dataset:
    """Load Fashion-MNIST from the data folder."""
    return _load(MNIST_SPECS["fashion-mnist"], data_dir)


def _load(spec: MnistSpec, data_dir: Path) -> Dataset:
    """Load the four idx files; images are bytes (n, 1, 28, 28)."""
    folder = find_folder([data_dir / folder for folder in spec.folders], spec)
    if folder is None:
        raise UserError(f"{spec.name} is not in {data_dir / spec.folders[0]}; run `fedcm data prepare {spec.name}`")
    arrays = read_arrays(folder, spec)
    train_images, train_labels, test_images, test_labels = (torch.from_numpy(array) for array in arrays)
    names = ("train_features", "train_labels", "test_features", "test_labels")
    return Dataset(
        spec.name,
        train=Examples(train_images[:, None], train_labels.long()),
        test=Examples(test_images[:, None], test_labels.long()),
        classes=10,
        normalisation=spec.normalisation,
        checksums={name: compute_sha256(array) for name, array in zip(names, arrays, strict=True)},
    )


def find_folder(folders: list[Path], spec: MnistSpec) -> Path | None:
    """Return the first folder that contains all four files; None if there is none."""
    return next((folder for folder in folders if all(find_idx_file(folder, name) for name in spec.files)), None)


def find_idx_file(folder: Path, name: str) -> Path | None:
    """Return the path of an idx file in `folder`, with or without .gz; None if there is none."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def read_arrays(folder: Path, spec: MnistSpec) -> list[np.ndarray]:
    """Read training images and labels, test images and labels.

    Raises:
        UserError: If a file is damaged or not the published one.
    """
    files = {name: find_idx_file(folder, name) for name in spec.files}
    return [read_idx(file, spec.files[name]) for name, file in files.items() if file is not None]


def read_idx(file: Path, expected: IdxFile) -> np.ndarray:
    """Read the array of one idx file of bytes.

    Raises:
        UserError: If the file cannot be read or is not the expected one.
    """
    header = bytes((0, 0, 8, len(expected.shape))) + np.array(expected.shape, ">u4").tobytes()
    size = len(header) + int(np.prod(expected.shape))
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            content = opened.read(size + 1)  # one byte more, to detect a file that is too long
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}; remove it and download it again") from error
    if len(content) != size or not content.startswith(header):
        got = "more" if len(content) > size else f"{len(content):,}" if len(content) < size else "another header"
        raise UserError(
            f"{file} must be an idx file of bytes of shape {expected.shape}, {size:,} bytes in total, got {got}; "
            "remove it and download it again"
        )
    if compute_md5(content) != expected.content_md5:
        raise UserError(
            f"{file} must have the content md5 {expected.content_md5}, got {compute_md5(content)}; it is another file"
        )
    return np.frombuffer(bytearray(content), np.uint8, offset=len(header)).reshape(expected.shape)
