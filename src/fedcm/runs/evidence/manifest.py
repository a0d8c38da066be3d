"""The manifest of a finished run: `manifest.json`, with the size and the sha256 of every file that is evidence.

It is written last, when a run ends, and removed first, when a resume makes the run longer. So a run in progress has
none, and a file that differs from its manifest was changed or damaged after the run ended. The file `.open` is there
from before a summary can lack its manifest until the manifest is written. A run with a summary, without a manifest and
without `.open` has lost its manifest, unless an older version, which wrote none, wrote the summary. The manifest also
has the checksum of its own table. It detects damage, not fraud: who can write to the folder can write another manifest.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from fedcm.errors import UserError
from fedcm.system.checksum import compute_file_sha256
from fedcm.system.error_messages import describe_os_error
from fedcm.system.files import find_wrong_kind, write_text

MANIFEST = "manifest.json"
FORMAT = 1
HAS_MANIFEST = "manifest"  # key of summary.json with the format: the run that wrote the summary also wrote a manifest
_SUMMARY = "summary.json"
_OPEN = ".open"
EVIDENCE = (
    "experiment.toml",
    "provenance.json",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "best.safetensors",
    "client_results.json",
    "federation.json",
)  # files that do not exist when the run ends are left out


class FileRecord(NamedTuple):
    """What a manifest says about one file."""

    size: int
    sha256: str


Manifest = dict[str, FileRecord]


class DamagedRunError(UserError):
    """A file of a finished run is not what the run wrote."""

    def __init__(self, folder: Path, damage: str) -> None:
        self.damage = damage
        super().__init__(
            f"the run {str(folder)!r} is damaged: {damage}; restore its files from a copy, or run its experiment again"
        )


def write_manifest(folder: Path) -> None:
    """Write the manifest of a run that has ended, after all other files are on the disk."""
    present = [name for name in EVIDENCE if (folder / name).is_file()]
    files = {
        name: {"size": (folder / name).stat().st_size, "sha256": compute_file_sha256(folder / name)} for name in present
    }
    table = {"format": FORMAT, "files": files, "sha256": _hash_table(files)}
    write_text(folder / MANIFEST, json.dumps(table, indent=2) + "\n")
    (folder / _OPEN).unlink(missing_ok=True)


def remove_manifest(folder: Path) -> None:
    """Remove the manifest, before a session changes the files."""
    if os.path.lexists(folder / MANIFEST):
        mark_open(folder)
        (folder / MANIFEST).unlink(missing_ok=True)


def mark_open(folder: Path) -> None:
    """Say that the run has no manifest now, before its summary is written; `write_manifest` ends this."""
    (folder / _OPEN).touch()


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a run; None if it has none, because it has not ended or an older version wrote it.

    Raises:
        DamagedRunError: If the manifest itself is damaged, or was removed after the run ended.
    """
    path = folder / MANIFEST
    try:
        table: Any = json.loads(path.read_bytes())
        files = table["files"]
        if table["format"] != FORMAT or table["sha256"] != _hash_table(files):
            raise ValueError("its own checksum differs")
        return {str(name): FileRecord(int(own["size"]), str(own["sha256"])) for name, own in files.items()}
    except FileNotFoundError as error:
        if path.is_symlink():
            raise DamagedRunError(folder, describe_os_error(error)) from None
        if not _lacks_manifest(folder):
            return None
        if path.exists():  # another process has just ended the run
            return read_manifest(folder)
        raise DamagedRunError(folder, f"{MANIFEST} is missing") from None
    except OSError as error:
        raise DamagedRunError(folder, describe_os_error(error)) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise DamagedRunError(folder, f"{MANIFEST} is not what the run wrote") from None


def read_evidence(path: Path) -> bytes | None:
    """Return the bytes of a run's file, if they are what the run wrote; None if there is no such file.

    Without a manifest any bytes are accepted.

    Raises:
        DamagedRunError: If the manifest says otherwise.
        UserError: If the path is a folder or a broken link, or cannot be read.
    """
    while True:
        manifest = read_manifest(path.parent)
        data = _try_read(path)
        damage = "" if manifest is None else _compare_bytes(path.name, manifest, data)
        if not damage:
            return data
        if read_manifest(path.parent) == manifest:  # otherwise a resume changed both in between
            raise DamagedRunError(path.parent, damage)


def check_evidence(path: Path) -> None:
    """Compare a large file with the manifest, without reading it into memory.

    Raises:
        DamagedRunError: If it is not what the run wrote.
    """
    while (manifest := read_manifest(path.parent)) is not None and (damage := find_damage(path, manifest)):
        if read_manifest(path.parent) == manifest:
            raise DamagedRunError(path.parent, damage)


def find_damage(path: Path, manifest: Manifest) -> str:
    """Return what is wrong with a file of a run; empty if nothing is."""
    record = manifest.get(path.name)
    if not os.path.lexists(path):
        return "" if record is None else f"{path.name} is missing"
    if wrong := find_wrong_kind(path):
        return wrong
    if record is None:
        return f"{path.name} was added after the run ended"
    try:
        if (size := path.stat().st_size) != record.size:
            return _describe_size(path.name, record.size, size)
        return "" if compute_file_sha256(path) == record.sha256 else _describe_change(path.name)
    except OSError as error:
        return describe_os_error(error)


def _compare_bytes(name: str, manifest: Manifest, data: bytes | None) -> str:
    record = manifest.get(name)
    if record is None:
        return "" if data is None else f"{name} was added after the run ended"
    if data is None:
        return f"{name} is missing"
    if len(data) != record.size:
        return _describe_size(name, record.size, len(data))
    return "" if hashlib.sha256(data).hexdigest() == record.sha256 else _describe_change(name)


def _try_read(path: Path) -> bytes | None:
    if wrong := find_wrong_kind(path):
        raise UserError(f"{wrong}; move it away, or restore the run from a copy")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(describe_os_error(error)) from None


def _describe_size(name: str, before: int, now: int) -> str:
    return f"{name} has {now} bytes, and the run wrote {before}"


def _describe_change(name: str) -> str:
    return f"{name} is not what the run wrote (its sha256 differs)"


def _lacks_manifest(folder: Path) -> bool:
    """Return whether a run without a manifest must have one: its summary says so, and no process is changing it."""
    try:
        summary: Any = json.loads((folder / _SUMMARY).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(summary, dict) and HAS_MANIFEST in summary and not (folder / _OPEN).exists()


def _hash_table(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
