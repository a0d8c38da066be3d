"""CIFAR's official files: pickles, in a folder or in the .tar.gz they are published in.

A pickle can run code when it is read. So a file is read only when its md5 is the published one, and even then by a
reader that can build numpy arrays and nothing else; an archive's members are taken by their exact names, in memory.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; https://www.cs.toronto.edu/~kriz/cifar.html
"""

import io
import pickle
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcm.data.checksum import md5
from fedcm.errors import UserError

_LARGEST = 1 << 28  # bytes of one member: the official ones stay under 160 MB


class Raw(NamedTuple):
    """One part as published: bytes (n, 3072), the three channels' 32 × 32 one after the other, and labels (n,)."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Official:
    """What one of the two datasets consists of, and the md5 of each file as its makers published it."""

    folder: str
    archive: str
    archive_md5: str
    label_key: bytes
    train: dict[str, str]  # file -> md5, in the order of the examples
    test: dict[str, str]

    @property
    def url(self) -> str:
        return f"https://www.cs.toronto.edu/~kriz/{self.archive}"


CIFAR10 = Official(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    label_key=b"labels",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
)
CIFAR100 = Official(
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    label_key=b"fine_labels",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
)


def found(folder: Path, official: Official) -> Path | None:
    """The official folder or archive that lies in `folder`, or is it."""
    if folder.is_dir() and all((folder / name).is_file() for name in official.train | official.test):
        return folder
    places = (folder / official.folder, folder / official.archive)
    return next((place for place in places if place.exists()), None)


def read(place: Path, official: Official) -> dict[str, Raw]:
    """The training and the test part from the official folder or archive."""
    wanted = official.train | official.test
    files = (
        _from_folder(place, wanted) if place.is_dir() else members(place, [f"{official.folder}/{n}" for n in wanted])
    )
    batches = {}
    for name, expected in wanted.items():
        content = files.pop(name if place.is_dir() else f"{official.folder}/{name}", None)
        if content is None:
            raise UserError(f"{place} must hold {name}, got none; it is not the official {official.folder}")
        if md5(content) != expected:
            raise UserError(f"{place}: {name} must have the md5 {expected}, got {md5(content)}; the copy is damaged")
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        batches[name] = Raw(batch[b"data"], np.array(batch[official.label_key], np.uint8))
    return {"train": _joined(batches, official.train), "test": _joined(batches, official.test)}


def members(archive: Path, names: list[str]) -> dict[str, bytes]:
    """The named plain files of a .tar.gz in one pass; what else it holds is not looked at, and nothing is unpacked."""
    kept = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.name in names and member.isfile() and member.size <= _LARGEST:
                    file = tar.extractfile(member)
                    assert file is not None  # a plain file has content
                    kept[member.name] = file.read()
                if len(kept) == len(names):
                    break
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"{archive} cannot be read as a .tar.gz: {error}") from error
    return kept


def _from_folder(folder: Path, names: dict[str, str]) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error}") from error


def _joined(batches: dict[str, Raw], names: dict[str, str]) -> Raw:
    images, labels = zip(*(batches[name] for name in names), strict=True)
    return Raw(np.concatenate(images), np.concatenate(labels))


class _ArraysOnly(pickle.Unpickler):
    """Reads containers, numbers, texts and numpy arrays; whatever else a pickle asks for is refused."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[
                0
            ],  # it has moved between numpy's versions
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): lambda code, *_: np.dtype(code),
        }
        if (module, name) not in known:
            raise UserError(f"a CIFAR pickle must hold arrays only, got a call of {module}.{name}")
        return known[module, name]
