"""The runs and digests that paths lead to: a run's folder, a folder of such, however deep, or a digest.

What `--fresh` moved to an archive is left out, unless the archive itself or a folder in it is named.
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

_EXPERIMENT = "experiment.toml"  # a folder with it is a run


@final
@dataclass
class Found:
    """What was read last, so that a run is read again only when it has grown."""

    data_dir: Path | None = None
    cells: Mapping[Path, dict[str, Any]] = field(default_factory=dict)  # in place of those in the runs' own files
    left_out: list[str] = field(default_factory=list)  # a sentence each
    _read: dict[Path, tuple[object, Digest]] = field(default_factory=dict)
    _mixes: object = None

    def digests(self, paths: Iterable[Path]) -> list[Digest]:
        """Each run once; what is damaged is told in `left_out`. Nothing at all is refused."""
        self.left_out.clear()
        found: list[tuple[Path, Digest]] = []
        for path in _places(paths):
            try:
                found.append((path, self._digest(path)))
            except UserError as refusal:
                self.left_out.append(str(refusal))
        if not found:
            raise UserError(
                self.left_out[0] if self.left_out else "there are no runs and no digests in the folders given"
            )
        return _told_apart(found)

    def _digest(self, path: Path) -> Digest:
        signature = _signature(path)
        before = self._read.get(path)
        if before is None or before[0] != signature or before[1].state == "running":
            self._read[path] = signature, self._from_run(path) if path.is_dir() else read_digest(path)
        return self._read[path][1]

    def _from_run(self, path: Path) -> Digest:
        """Digests alone make a page without torch; runs need it."""
        from fedcm.reports.condense import condensed
        from fedcm.reports.mixes import Mixes
        from fedcm.runs.folder import RunFolder

        if not isinstance(self._mixes, Mixes):
            self._mixes = Mixes(self.data_dir)
        digest = condensed(RunFolder(path), self._mixes)
        return digest.in_cell(self.cells[path]) if path in self.cells else digest


def _places(paths: Iterable[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if not os.path.lexists(path):
            raise UserError(f"there is no run, folder or digest {str(path)!r}; `fedcm runs` lists the runs")
        for place in _under(path):
            if place.resolve() not in seen:
                seen.add(place.resolve())
                yield place


def _under(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, inner, files in os.walk(path):
        if _EXPERIMENT in files:
            yield Path(folder)
            inner.clear()
            continue
        inner[:] = sorted(name for name in inner if not name.startswith(".") and not is_archive(Path(folder, name)))
        for name in sorted(files):
            if name.endswith(".json") and _begins_like_a_digest(Path(folder, name)):
                yield Path(folder, name)


def _begins_like_a_digest(path: Path) -> bool:
    """A folder may hold other JSON; a file that is named is read whatever it begins with."""
    try:
        with path.open("rb") as file:
            return file.read(10) == b'{"digest":'
    except OSError:
        return False


def _signature(path: Path) -> tuple[object, ...]:
    files = (
        [path]
        if path.is_file()
        else [path / name for name in (_EXPERIMENT, "metrics.jsonl", "summary.json", "cells.json")]
    )
    return tuple((s.st_mtime_ns, s.st_size) if (s := _stat(file)) else None for file in files)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _told_apart(found: list[tuple[Path, Digest]]) -> list[Digest]:
    """Runs of one name in several folders are told by their folders too, and by numbers where that is not enough."""
    times = Counter(digest.name for _, digest in found)
    names = [d.name if times[d.name] == 1 else f"{path.absolute().parent.name}/{d.name}" for path, d in found]
    seen: Counter[str] = Counter()
    result = []
    for (_, digest), name in zip(found, names, strict=True):
        seen[name] += 1
        own = name if seen[name] == 1 else f"{name} ({seen[name]})"
        result.append(digest if own == digest.name else digest.model_copy(update={"name": own}))
    return result
