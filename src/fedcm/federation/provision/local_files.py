"""The files of a kit's `local/`: a renewal writes them again, except for those that the operator has changed or added.

`local.sha256` in the kit records what was written last. It distinguishes a changed file from one that an older version
of fedcm wrote. It has the format of `sha256sum`: `sha256sum -c local.sha256` lists the files that were changed.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedcm.federation.engine import names_unknown_classes

LOCAL = "local"
CHECKSUMS_FILE = "local.sha256"


class OperatorFiles(NamedTuple):
    """The files of `local/` that differ from what provisioning wrote, by their paths in it."""

    kept: list[str]  # changed or added by the operator
    replaced: list[str]  # their changes cannot stay


def find_operator_files(kit: Path, texts: Mapping[str, str]) -> OperatorFiles:
    """Return which files of a kit's `local/` a renewal keeps, and which ones it replaces although they differ.

    A file that names classes of another version of fedcm is replaced, because the engine could not load it. So is a
    file of a kit without `local.sha256`, which may come from an older version.

    Args:
        kit: The kit's folder; it may have no `local/` yet.
        texts: The files that the renewal writes, by name.
    """
    recorded = _read_checksums(kit / CHECKSUMS_FILE)
    kept, replaced = [], []
    for path in sorted(path for path in (kit / LOCAL).rglob("*") if path.is_file()):
        name, content = path.relative_to(kit / LOCAL).as_posix(), path.read_bytes()
        if _compute_checksum(content) == recorded.get(name) or content == texts.get(name, "").encode():
            continue
        is_unusable = name in texts and (name not in recorded or _is_outdated(content))
        (replaced if is_unusable else kept).append(name)
    return OperatorFiles(kept, replaced)


def write_local_files(folder: Path, kit: Path, texts: Mapping[str, str], kept: list[str]) -> None:
    """Write the new `local/` of a kit into a folder, with the operator's files in it.

    Args:
        folder: An empty folder, which then replaces the kit's `local/`.
        kit: The kit's folder.
        texts: The files to write, by name.
        kept: The operator's files, which are copied from the kit's `local/`.
    """
    for name, text in texts.items():
        if name not in kept:
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o600)
    for name in kept:
        (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(kit / LOCAL / name, folder / name, follow_symlinks=False)


def format_checksums(texts: Mapping[str, str]) -> str:
    """Return the text of `local.sha256` for files that were written."""
    return "".join(f"{_compute_checksum(text.encode())}  {LOCAL}/{name}\n" for name, text in texts.items())


def _read_checksums(path: Path) -> dict[str, str]:
    try:
        lines = [line.split("  ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
        return {name.removeprefix(f"{LOCAL}/"): checksum for checksum, name in lines}
    except (OSError, ValueError):
        return {}


def _compute_checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_outdated(content: bytes) -> bool:
    try:
        return names_unknown_classes(json.loads(content))
    except ValueError:
        return False  # the engine explains a damaged file itself
