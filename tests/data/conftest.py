"""A CIFAR of a few images in every form the real one comes in, with the known checksums changed to fit it."""

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

from fedcm.data import cifar, mnist
from fedcm.data.checksum import sha256
from fedcm.data.sources.cifar_official import Raw


@dataclass
class TinyCifar:
    """Where its forms lie; none of them is in a data folder yet."""

    name: str
    parts: dict[str, Raw]
    folder: Path
    archive: Path
    package: Path


def official_pickle(raw: Raw, label_key: bytes) -> bytes:
    """As the makers' Python 2 wrote it: byte strings, and the array by numpy's old module name."""
    size = len(raw.images)
    out = b"\x80\x02}(" + b"U" + bytes([len(label_key)]) + label_key + b"](" + b"".join(b"K%c" % y for y in raw.labels)
    out += b"eU\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    out += b"(K\x01M" + struct.pack("<H", size) + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    out += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
    return out + struct.pack("<I", size * 3072) + raw.images.tobytes() + b"tbu."


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as opened:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


def sheet(images: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(images.reshape(-1, 3, 1024).transpose(0, 2, 1).copy()).save(out, "PNG")
    return out.getvalue()


def make_tiny(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    known = cifar.KNOWN[name]
    chance = np.random.default_rng(5)
    batches = {
        file: Raw(
            chance.integers(0, 256, (3, 3072), dtype=np.uint8), chance.integers(0, known.classes, 3, dtype=np.uint8)
        )
        for file in known.official.train | known.official.test
    }
    files = {file: official_pickle(raw, known.official.label_key) for file, raw in batches.items()}

    def joined(names: dict[str, str]) -> Raw:
        return Raw(
            np.concatenate([batches[n].images for n in names]), np.concatenate([batches[n].labels for n in names])
        )

    def sums(names: dict[str, str]) -> dict[str, str]:
        return {file: hashlib.md5(files[file]).hexdigest() for file in names}

    parts = {"train": joined(known.official.train), "test": joined(known.official.test)}
    official = replace(known.official, train=sums(known.official.train), test=sums(known.official.test))
    arrays = {f"{part}_{field}": sha256(array) for part, raw in parts.items() for field, array in raw._asdict().items()}
    monkeypatch.setitem(cifar.KNOWN, name, replace(known, official=official, sha256=arrays))

    folder = place / official.folder
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    archive = tar(place / official.archive, {f"{official.folder}/{file}": content for file, content in files.items()})
    sheets = {f"package/{file}.png": sheet(raw.images) for file, raw in batches.items()}
    labels = {f"package/{part}_lables.json": json.dumps(raw.labels.tolist()).encode() for part, raw in parts.items()}
    package = tar(place / "tiny.tgz", {"package/package.json": b"{}"} | sheets | labels)
    return TinyCifar(name, parts, folder, archive, package)


@pytest.fixture
def tiny10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    return make_tiny("cifar10", tmp_path / "elsewhere", monkeypatch)


@pytest.fixture
def tiny100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    return make_tiny("cifar100", tmp_path / "elsewhere100", monkeypatch)


@pytest.fixture
def make_tar() -> Callable[[Path, dict[str, bytes]], Path]:
    return tar


class Trap:
    """Unpickled by an ordinary reader, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "run")


@pytest.fixture
def trap(tmp_path: Path) -> tuple[bytes, Path]:
    """A pickle that runs code, and the file that would tell."""
    return pickle.dumps(Trap(tmp_path / "code ran"), 2), tmp_path / "code ran"


@pytest.fixture
def tiny_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with MNIST's four idx files, of 6 and 2 images."""
    known, folder, files = mnist.KNOWN["mnist"], tmp_path / "idx", {}
    folder.mkdir()
    chance = np.random.default_rng(6)
    for name, file in known.files.items():
        shape = (6 if name.startswith("train") else 2, *file.shape[1:])
        values = chance.integers(0, 256 if len(shape) == 3 else 10, shape, dtype=np.uint8)
        content = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + values.tobytes()
        (folder / name).write_bytes(content)
        files[name] = mnist.IdxFile(shape, hashlib.md5(content).hexdigest(), "")
    addresses = ("http://first.invalid/", "http://second.invalid/")
    monkeypatch.setitem(mnist.KNOWN, "mnist", replace(known, files=files, addresses=addresses))
    return folder
