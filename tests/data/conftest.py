"""A tiny CIFAR in every form of the real one, and a tiny MNIST; the known checksums are changed to match."""

import hashlib
import io
import json
import pickle
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedcm.data.sources import cifar, mnist
from fedcm.data.sources.cifar_official import RawCifar
from fedcm.system.checksum import compute_sha256


@dataclass
class TinyCifar:
    """The paths of its forms; none of them is in a data folder."""

    name: str
    parts: dict[str, RawCifar]
    folder: Path
    archive: Path
    package: Path


def make_official_pickle(raw: RawCifar, label_key: bytes) -> bytes:
    """Pickle a batch as the authors' Python 2 did: byte strings, and the array with NumPy's old module name."""
    size = len(raw.images)
    out = b"\x80\x02}(" + b"U" + bytes([len(label_key)]) + label_key + b"](" + b"".join(b"K%c" % y for y in raw.labels)
    out += b"eU\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    out += b"(K\x01M" + struct.pack("<H", size) + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    out += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
    return out + struct.pack("<I", size * 3072) + raw.images.tobytes() + b"tbu."


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as opened:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


def make_sheet(images: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(images.reshape(-1, 3, 1024).transpose(0, 2, 1).copy()).save(out, "PNG")
    return out.getvalue()


def make_tiny_cifar(name: str, parent: Path, monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    spec = cifar.CIFAR_SPECS[name]
    generator = np.random.default_rng(5)
    batches = {
        file: RawCifar(
            generator.integers(0, 256, (3, 3072), dtype=np.uint8),
            generator.integers(0, spec.classes, 3, dtype=np.uint8),
        )
        for file in spec.official.train | spec.official.test
    }
    files = {file: make_official_pickle(raw, spec.official.label_key) for file, raw in batches.items()}

    def join(names: dict[str, str]) -> RawCifar:
        return RawCifar(
            np.concatenate([batches[n].images for n in names]), np.concatenate([batches[n].labels for n in names])
        )

    def compute_md5s(names: dict[str, str]) -> dict[str, str]:
        return {file: hashlib.md5(files[file]).hexdigest() for file in names}

    parts = {"train": join(spec.official.train), "test": join(spec.official.test)}
    official = replace(spec.official, train=compute_md5s(spec.official.train), test=compute_md5s(spec.official.test))
    arrays = {
        f"{part}_{field}": compute_sha256(array)
        for part, raw in parts.items()
        for field, array in raw._asdict().items()
    }
    monkeypatch.setitem(cifar.CIFAR_SPECS, name, replace(spec, official=official, sha256=arrays))

    folder = parent / official.folder
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    archive = write_tar(
        parent / official.archive, {f"{official.folder}/{file}": content for file, content in files.items()}
    )
    sheets = {f"package/{file}.png": make_sheet(raw.images) for file, raw in batches.items()}
    labels = {f"package/{part}_lables.json": json.dumps(raw.labels.tolist()).encode() for part, raw in parts.items()}
    package = write_tar(parent / "tiny.tgz", {"package/package.json": b"{}"} | sheets | labels)
    return TinyCifar(name, parts, folder, archive, package)


@pytest.fixture
def tiny10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    return make_tiny_cifar("cifar10", tmp_path / "elsewhere", monkeypatch)


@pytest.fixture
def tiny100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    return make_tiny_cifar("cifar100", tmp_path / "elsewhere100", monkeypatch)


@pytest.fixture
def make_tar() -> Callable[[Path, dict[str, bytes]], Path]:
    return write_tar


class Trap:
    """Writes a file when an ordinary unpickler reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "run")


@pytest.fixture
def trap(tmp_path: Path) -> tuple[bytes, Path]:
    """A pickle that runs code, and the file that the code would write."""
    return pickle.dumps(Trap(tmp_path / "code ran"), 2), tmp_path / "code ran"


@pytest.fixture
def tiny_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the four idx files of an MNIST of 6 training and 2 test images."""
    spec, folder, files = mnist.MNIST_SPECS["mnist"], tmp_path / "idx", {}
    folder.mkdir()
    generator = np.random.default_rng(6)
    for name, file in spec.files.items():
        shape = (6 if name.startswith("train") else 2, *file.shape[1:])
        values = generator.integers(0, 256 if len(shape) == 3 else 10, shape, dtype=np.uint8)
        content = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + values.tobytes()
        (folder / name).write_bytes(content)
        files[name] = mnist.IdxFile(shape, hashlib.md5(content).hexdigest(), "")
    addresses = ("http://first.invalid/", "http://second.invalid/")
    monkeypatch.setitem(mnist.MNIST_SPECS, "mnist", replace(spec, files=files, addresses=addresses))
    return folder
