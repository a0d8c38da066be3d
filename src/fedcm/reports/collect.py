"""Find runs and digests under paths, and read them.

A path is a run's folder, a folder that contains runs or digests at any depth, or a digest file. Runs that `--fresh`
moved to an archive are skipped unless the path is the archive or a folder in it.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.reports.digest import Digest, read_digest
from fedcm.runs.archive import is_archive
from fedcm.runs.evidence.manifest import EVIDENCE, MANIFEST

_EXPERIMENT = "experiment.toml"  # marks a run's folder
_WATCHED = (*EVIDENCE, MANIFEST, "cells.json")


def has_runs(paths: Iterable[Path]) -> bool:
    """Return whether at least one path leads to a run or a digest."""
    return any(os.path.lexists(path) and any(True for _ in _walk(path)) for path in paths)


@final
@dataclass
class RunCollection:
    """Reads runs as digests, and reads a run again only if its files have changed.

    Args:
        data_dir: Where datasets are stored, for the label mixes.
        cells: By run folder, the cell to show the run in, in place of the cell in the run's own files.
    """

    data_dir: Path | None = None
    cells: Mapping[Path, dict[str, Any]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)  # one sentence per run or digest that could not be read
    _cache: dict[Path, tuple[object, Digest]] = field(default_factory=dict)
    _find_label_mix: object = None

    def read_digests(self, paths: Iterable[Path]) -> list[Digest]:
        """Return one digest per run; damaged runs are listed in `skipped`.

        Raises:
            UserError: If a path does not exist, or there is nothing to read.
        """
        self.skipped.clear()
        digests: list[tuple[Path, Digest]] = []
        for path in _list_locations(paths):
            try:
                digests.append((path, self._read(path)))
            except UserError as error:
                self.skipped.append(str(error))
        if not digests:
            raise UserError(self.skipped[0] if self.skipped else "there are no runs or digests in the given folders")
        return _make_names_unique(digests)

    def _read(self, path: Path) -> Digest:
        signature = _get_signature(path)
        cached = self._cache.get(path)
        if cached is None or cached[0] != signature or cached[1].state == "running":
            self._cache[path] = signature, self._read_run(path) if path.is_dir() else read_digest(path)
        return self._cache[path][1]

    def _read_run(self, path: Path) -> Digest:
        # imported here because it needs torch, which a report about digests does not
        from fedcm.reports.extraction import make_digest
        from fedcm.reports.label_mixes import LabelMixFinder
        from fedcm.runs.folder import RunFolder

        if not isinstance(self._find_label_mix, LabelMixFinder):
            self._find_label_mix = LabelMixFinder(self.data_dir)
        digest = make_digest(RunFolder(path), self._find_label_mix)
        return digest.place_in_cell(self.cells[path]) if path in self.cells else digest


def _list_locations(paths: Iterable[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if not os.path.lexists(path):
            raise UserError(f"there is no run, folder or digest {str(path)!r}; `fedcm runs` lists the runs")
        for location in _walk(path):
            if location.resolve() not in seen:
                seen.add(location.resolve())
                yield location


def _walk(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, inner, files in os.walk(path):
        if _EXPERIMENT in (*inner, *files):  # a folder of this name is an error of that run
            yield Path(folder)
            inner.clear()
            continue
        inner[:] = sorted(name for name in inner if not name.startswith(".") and not is_archive(Path(folder, name)))
        for name in sorted(files):
            if name.endswith(".json") and _looks_like_digest(Path(folder, name)):
                yield Path(folder, name)


def _looks_like_digest(path: Path) -> bool:
    """Check the first bytes, because a folder may hold other JSON; a file that is named itself is always read."""
    try:
        with path.open("rb") as file:
            return file.read(10) == b'{"digest":'
    except OSError:
        return False


def _get_signature(path: Path) -> tuple[object, ...]:
    files = [path] if path.is_file() else [path / name for name in _WATCHED]
    return tuple((s.st_mtime_ns, s.st_size) if (s := _get_stat(file)) else None for file in files)


def _get_stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _make_names_unique(digests: list[tuple[Path, Digest]]) -> list[Digest]:
    """Put the folder before a name that several runs have, and a number after it if that is not enough."""
    times = Counter(digest.name for _, digest in digests)
    names = [d.name if times[d.name] == 1 else f"{path.absolute().parent.name}/{d.name}" for path, d in digests]
    seen: Counter[str] = Counter()
    result = []
    for (_, digest), name in zip(digests, names, strict=True):
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name} ({seen[name]})"
        result.append(digest if unique == digest.name else digest.model_copy(update={"name": unique}))
    return result
