"""The official CIFAR files: pickles, in a folder or in the published .tar.gz.

Reading a pickle can run code. A file is therefore read only if its md5 is the published one, and then by an unpickler
that can build NumPy arrays and nothing else. Members of an archive are read by their exact names, in memory.

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

from fedcm.errors import UserError
from fedcm.system.checksum import compute_md5

_MAX_MEMBER_BYTES = 1 << 28  # the official files are below 160 MB


class RawCifar(NamedTuple):
    """One published part: images (n, 3 · 32 · 32), channel after channel, and labels (n,), both bytes."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class OfficialFiles:
    """The official files of one of the two datasets, with the md5 of each as its authors published it."""

    folder: str
    archive: str
    archive_md5: str
    label_key: bytes
    train: dict[str, str]  # file -> md5, in the order of the examples
    test: dict[str, str]

    @property
    def url(self) -> str:
        """The address of the archive."""
        return f"https://www.cs.toronto.edu/~kriz/{self.archive}"


CIFAR10 = OfficialFiles(
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
CIFAR100 = OfficialFiles(
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    label_key=b"fine_labels",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
)


def find_official_files(folder: Path, official: OfficialFiles) -> Path | None:
    """Return the official folder or archive inside `folder`, or `folder` itself if it contains the official files."""
    if folder.is_dir() and all((folder / name).is_file() for name in official.train | official.test):
        return folder
    places = (folder / official.folder, folder / official.archive)
    return next((place for place in places if place.exists()), None)


def read_official_files(place: Path, official: OfficialFiles) -> dict[str, RawCifar]:
    """Read the training and the test part.

    Args:
        place: The official folder or archive.
        official: What it must contain.

    Raises:
        UserError: If a file is missing or has another md5.
    """
    wanted = official.train | official.test
    files = (
        _read_folder(place, wanted)
        if place.is_dir()
        else read_tar_members(place, [f"{official.folder}/{n}" for n in wanted])
    )
    batches = {}
    for name, expected in wanted.items():
        content = files.pop(name if place.is_dir() else f"{official.folder}/{name}", None)
        if content is None:
            raise UserError(f"{place} must contain {name}, but does not; it is not the official {official.folder}")
        if compute_md5(content) != expected:
            raise UserError(
                f"{place}: {name} must have the md5 {expected}, got {compute_md5(content)}; the copy is damaged"
            )
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        batches[name] = RawCifar(batch[b"data"], np.array(batch[official.label_key], np.uint8))
    return {"train": _join_batches(batches, official.train), "test": _join_batches(batches, official.test)}


def read_tar_members(archive: Path, names: list[str]) -> dict[str, bytes]:
    """Read the named plain files of a .tar.gz in one pass; other members are skipped, and nothing is written to disk.

    Returns:
        The content of each file that was found, by name.

    Raises:
        UserError: If the archive cannot be read.
    """
    contents = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.name in names and member.isfile() and member.size <= _MAX_MEMBER_BYTES:
                    file = tar.extractfile(member)
                    assert file is not None  # a plain file has content
                    contents[member.name] = file.read()
                if len(contents) == len(names):
                    break
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"{archive} cannot be read as a .tar.gz: {error}") from error
    return contents


def _read_folder(folder: Path, names: dict[str, str]) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error}") from error


def _join_batches(batches: dict[str, RawCifar], names: dict[str, str]) -> RawCifar:
    images, labels = zip(*(batches[name] for name in names), strict=True)
    return RawCifar(np.concatenate(images), np.concatenate(labels))


class _ArraysOnly(pickle.Unpickler):
    """Unpickles containers, numbers, strings and NumPy arrays; raises UserError for everything else."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            # taken from an array, because NumPy has moved this function
            ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): lambda code, *_: np.dtype(code),
        }
        if (module, name) not in known:
            raise UserError(f"a CIFAR pickle must contain arrays only, got a call of {module}.{name}")
        return known[module, name]
