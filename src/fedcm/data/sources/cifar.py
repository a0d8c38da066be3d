"""CIFAR-10 and CIFAR-100 (fine labels): 50,000 + 10,000 colour images of 32 × 32.

A prepared dataset is stored in `<data folder>/<name>/` as four arrays, {train,test}_{images,labels}.npy, and mapped
into memory. Every load compares the sha256 of each array with that of the published data, so results can only come
from the real images in the official order.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.data.sources import cifar_official
from fedcm.data.sources.cifar_official import OfficialFiles, RawCifar
from fedcm.errors import UserError
from fedcm.system.checksum import compute_sha256
from fedcm.system.files import atomic_write


@dataclass(frozen=True)
class CifarSpec:
    """The published facts of one of the two datasets; `sha256` is that of each raw array, bytes (n, 3072) or (n,)."""

    name: str
    classes: int
    normalisation: Normalisation
    official: OfficialFiles
    sha256: dict[str, str]


CIFAR_SPECS = {
    "cifar10": CifarSpec(
        name="cifar10",
        classes=10,
        normalisation=Normalisation(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
        official=cifar_official.CIFAR10,
        sha256={
            "train_images": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
            "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test_images": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
            "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
    ),
    "cifar100": CifarSpec(
        name="cifar100",
        classes=100,
        normalisation=Normalisation(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
        official=cifar_official.CIFAR100,
        sha256={
            "train_images": "de64658905c6b161606e3649ddafce7cf86c7634a0cf9116d518e64ef46a33c5",
            "train_labels": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "test_images": "83c56492b2c11211ad1bb2dbd4f2eef4170a0441e41a41f3039c3144b1f5a511",
            "test_labels": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
        },
    ),
}


def load_cifar10(data_dir: Path) -> Dataset:
    """Load CIFAR-10 from the data folder."""
    return load_cifar(CIFAR_SPECS["cifar10"], data_dir)


def load_cifar100(data_dir: Path) -> Dataset:
    """Load CIFAR-100 with its fine labels from the data folder."""
    return load_cifar(CIFAR_SPECS["cifar100"], data_dir)


def load_cifar(spec: CifarSpec, data_dir: Path) -> Dataset:
    """Load the prepared arrays; if the data folder contains only the official files, prepare them first.

    Raises:
        UserError: If the data folder has neither, or they are not the published files.
    """
    folder = data_dir / spec.name
    if not is_prepared(folder, spec):
        official_files = cifar_official.find_official_files(data_dir, spec.official)
        if official_files is None:
            raise UserError(f"{spec.name} is not in the data folder {data_dir}; run `fedcm data prepare {spec.name}`")
        write_prepared(cifar_official.read_official_files(official_files, spec.official), folder, spec)
    train, test = (_convert_examples(part) for part in read_prepared(folder, spec).values())
    checksums = {name.replace("images", "features"): value for name, value in spec.sha256.items()}
    return Dataset(spec.name, train, test, spec.classes, spec.normalisation, checksums=checksums, mapped=True)


def is_prepared(folder: Path, spec: CifarSpec) -> bool:
    """Return whether all array files exist; `read_prepared` checks their content."""
    return all((folder / f"{array}.npy").is_file() for array in spec.sha256)


def read_prepared(folder: Path, spec: CifarSpec) -> dict[str, RawCifar]:
    """Read the prepared arrays.

    Raises:
        UserError: If they cannot be read or are not the published ones.
    """
    arrays = {}
    for array in spec.sha256:
        file = folder / f"{array}.npy"
        try:
            # copy on write: all readers share the pages, and torch gets the writable memory that it requires
            arrays[array] = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(
                f"{file} cannot be read ({error}); run `fedcm data prepare {spec.name}` to write it again"
            ) from error
    parts = {part: RawCifar(arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "test")}
    check_published(parts, spec, f"{folder} (run `fedcm data prepare {spec.name}` to write it again)")
    return parts


def write_prepared(parts: dict[str, RawCifar], folder: Path, spec: CifarSpec) -> None:
    """Check the arrays, then write each atomically.

    Raises:
        UserError: If they are not the published ones, or cannot be written.
    """
    check_published(parts, spec, "the source")
    try:
        for part, raw in parts.items():
            for field, array in raw._asdict().items():
                with atomic_write(folder / f"{part}_{field}.npy") as temporary, temporary.open("wb") as file:
                    np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{spec.name} cannot be written to {folder}: {error}") from error


def check_published(parts: dict[str, RawCifar], spec: CifarSpec, where: str) -> None:
    """Raise UserError if the arrays are not the published ones, in the published order.

    Args:
        parts: The arrays "train" and "test".
        spec: The dataset.
        where: What the message calls their place.
    """
    for part, raw in parts.items():
        for field, array in raw._asdict().items():
            shape = (len(array), 3072) if field == "images" else (len(array),)
            is_valid = array.dtype == np.uint8 and array.shape == shape
            if not is_valid or compute_sha256(array) != spec.sha256[f"{part}_{field}"]:
                raise UserError(f"{spec.name}: the {part} {field} must be the published ones, got others in {where}")


def _convert_examples(raw: RawCifar) -> Examples:
    images, labels = torch.from_numpy(raw.images).view(-1, 3, 32, 32), torch.from_numpy(raw.labels)
    return Examples(images, labels.long())
