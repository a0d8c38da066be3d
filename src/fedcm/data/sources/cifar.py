"""CIFAR-10 and CIFAR-100 (fine labels): 50,000 + 10,000 colour images of 32 × 32.

They lie prepared in `<data folder>/<name>/` as four arrays, {train,test}_{images,labels}.npy, the images mapped into
memory rather than read. Every load compares the sha256 of each array with the published data's, so a result can only
come from the real images in the official order.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedcm.data.checksum import sha256
from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.data.sources import cifar_official
from fedcm.data.sources.cifar_official import Official, Raw
from fedcm.errors import UserError
from fedcm.system.files import atomic_write


@dataclass(frozen=True)
class Cifar:
    """What is known about one of the two; `sha256` is of the raw arrays, bytes (n, 3072) and (n,)."""

    name: str
    classes: int
    normalisation: Normalisation
    official: Official
    sha256: dict[str, str]


KNOWN = {
    "cifar10": Cifar(
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
    "cifar100": Cifar(
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
    return load(KNOWN["cifar10"], data_dir)


def load_cifar100(data_dir: Path) -> Dataset:
    return load(KNOWN["cifar100"], data_dir)


def load(known: Cifar, data_dir: Path) -> Dataset:
    """The prepared arrays; where only the official files lie in the data folder, they are prepared first."""
    folder = data_dir / known.name
    if not is_prepared(folder, known):
        place = cifar_official.found(data_dir, known.official)
        if place is None:
            raise UserError(
                f"{known.name} must be in the data folder {data_dir}, got none; run `fedcm data prepare {known.name}`"
            )
        write(cifar_official.read(place, known.official), folder, known)
    train, test = (_examples(part) for part in read(folder, known).values())
    checksums = {name.replace("images", "features"): value for name, value in known.sha256.items()}
    return Dataset(known.name, train, test, known.classes, known.normalisation, checksums=checksums, mapped=True)


def is_prepared(folder: Path, known: Cifar) -> bool:
    """Whether all arrays are there; `read` tells whether they are the right ones."""
    return all((folder / f"{array}.npy").is_file() for array in known.sha256)


def read(folder: Path, known: Cifar) -> dict[str, Raw]:
    """The prepared arrays, each the published one or refused."""
    arrays = {}
    for array in known.sha256:
        file = folder / f"{array}.npy"
        try:
            # copy on write: pages are shared by all who read, and torch gets the writable memory it asks for
            arrays[array] = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(
                f"{file} cannot be read ({error}); run `fedcm data prepare {known.name}` to write it anew"
            ) from error
    parts = {part: Raw(arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "test")}
    check(parts, known, f"{folder} (run `fedcm data prepare {known.name}` to write it anew)")
    return parts


def write(parts: dict[str, Raw], folder: Path, known: Cifar) -> None:
    """Prepare: check the arrays, then put each in its place whole."""
    check(parts, known, "what was read")
    try:
        for part, raw in parts.items():
            for field, array in raw._asdict().items():
                with atomic_write(folder / f"{part}_{field}.npy") as temporary, temporary.open("wb") as file:
                    np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{known.name} must be written to {folder}, got {error}") from error


def check(parts: dict[str, Raw], known: Cifar, where: str) -> None:
    """Refuse arrays that are not the published ones, example for example."""
    for part, raw in parts.items():
        for field, array in raw._asdict().items():
            shape = (len(array), 3072) if field == "images" else (len(array),)
            right = array.dtype == np.uint8 and array.shape == shape
            if not right or sha256(array) != known.sha256[f"{part}_{field}"]:
                raise UserError(f"{known.name}: the {part} {field} must be the published ones, got others in {where}")


def _examples(raw: Raw) -> Examples:
    images, labels = torch.from_numpy(raw.images).view(-1, 3, 32, 32), torch.from_numpy(raw.labels)
    return Examples(images, labels.long())
