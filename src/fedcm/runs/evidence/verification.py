"""Verify finished runs: compare every file of their manifests."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedcm.errors import UserError
from fedcm.runs.archive import is_archive
from fedcm.runs.evidence.manifest import EVIDENCE, DamagedRunError, Manifest, find_damage, read_manifest
from fedcm.runs.folder import RunFolder, find_run

VerificationState = Literal["intact", "damaged", "no manifest", "not finished"]


class Verification(NamedTuple):
    """What the verification of one run found."""

    path: Path
    state: VerificationState
    damage: tuple[str, ...] = ()  # one clause per damaged file
    files: int = 0  # files that were compared

    @property
    def line(self) -> str:
        """The result as a line of text."""
        details = {
            "intact": f"{self.files} files",
            "damaged": "; ".join(self.damage),
            "no manifest": "an older version wrote the run, so nothing can be compared",
            "not finished": "a run gets its manifest when it ends",
        }
        return f"{self.path}: {self.state} ({details[self.state]})"

    @property
    def table(self) -> dict[str, Any]:
        """The result as JSON."""
        return {"path": str(self.path), "state": self.state, "damage": list(self.damage), "files": self.files}


def verify_run(folder: RunFolder) -> Verification:
    """Compare every file of a run with its manifest. A resume in another process is no damage."""
    while True:
        manifest, damage = _read_manifest(folder.path)
        if manifest is not None:
            damage = tuple(filter(None, (find_damage(folder.path / name, manifest) for name in _list_names(manifest))))
        elif not damage:
            return _verify_without_manifest(folder)
        if not damage:
            return Verification(folder.path, "intact", files=len(manifest or ()))
        if _read_manifest(folder.path)[0] == manifest:  # otherwise a resume changed both in between
            return Verification(folder.path, "damaged", damage, len(manifest or ()))


def reject_damage(folder: RunFolder) -> None:
    """Raise a DamagedRunError if a file of the run is not what the run wrote."""
    found = verify_run(folder)
    if found.state == "damaged":
        raise DamagedRunError(folder.path, "; ".join(found.damage))


def find_runs(paths: Iterable[Path], runs_dir: Path) -> list[RunFolder]:
    """Return the runs that paths lead to: runs' folders, names of runs, or folders that contain runs at any depth.

    Raises:
        UserError: If a path leads to no run.
    """
    found: dict[Path, RunFolder] = {}
    for path in paths:
        inside = list(_walk(path))
        if not inside:
            inside = [find_run(path, runs_dir)] if not path.is_dir() else []
        if not inside:
            raise UserError(f"there are no runs in {str(path)!r}; give a run, or a folder that contains runs")
        for run in inside:
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def _walk(path: Path) -> Iterator[RunFolder]:
    for folder, inner, files in os.walk(path):
        if "experiment.toml" in (*inner, *files) or "manifest.json" in files:
            inner.clear()
            yield RunFolder(Path(folder))
        inner[:] = sorted(name for name in inner if not name.startswith(".") and not is_archive(Path(folder, name)))


def _read_manifest(path: Path) -> tuple[Manifest | None, tuple[str, ...]]:
    """The manifest, and what is wrong with it."""
    try:
        return read_manifest(path), ()
    except DamagedRunError as error:
        return None, (error.damage,)


def _list_names(manifest: Manifest) -> list[str]:
    """The listed files, and files of a run that may have been added later."""
    return list(dict.fromkeys((*EVIDENCE, *manifest)))


def _verify_without_manifest(folder: RunFolder) -> Verification:
    try:
        folder.reject_wrong_kinds()
        has_ended = folder.read_summary() is not None
    except UserError as error:
        return Verification(folder.path, "damaged", (str(error),))
    return Verification(folder.path, "no manifest" if has_ended and not folder.is_locked() else "not finished")
