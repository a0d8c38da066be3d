"""A run's folder.

experiment.toml    the experiment with every default filled in; `fedcm run` takes it as it is
provenance.json    versions, the CPU, checksums of the data, when and where
metrics.jsonl      one line a round
checkpoints/       the last few states
summary.json       when the run is over
model.safetensors  the trained model, by its parameters' names
"""

import errno
import fcntl
import itertools
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError, suggest
from fedcm.runs.archive import move_to_archive, remove_if_empty
from fedcm.runs.checkpoint import save_tensors
from fedcm.system.files import atomic_write, fsync_file, fsync_folder, write_text
from fedcm.system.locks import is_locked
from fedcm.system.processor import describe_cpu

_LIBRARIES = ("fedcm", "torch", "numpy", "scikit-learn", "safetensors")


class RunExistsError(UserError):
    """Something of this name is there already."""

    def __init__(self, path: Path) -> None:
        go_on = f"resume it with `fedcm resume {shlex.quote(str(path))}`, or give another --name"
        if RunFolder(path).experiment.is_file():
            super().__init__(f"the run {str(path)!r} exists already; {go_on}")
        else:
            super().__init__(f"{str(path)!r} is there already, and is no run; give another --name or --runs-dir")


@final
class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.experiment = path / "experiment.toml"
        self.provenance = path / "provenance.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.client_states = path / "clients" / "states.bin"
        self.summary = path / "summary.json"
        self.model = path / "model.safetensors"
        self._lock: int | None = None

    @classmethod
    def create(
        cls, path: Path, experiment: str, provenance: dict[str, Any], *, archive: Path | None = None
    ) -> "RunFolder":
        """Appears whole and locked, or not at all. A run that is there already is moved to the archive if one is given,
        and refused otherwise."""
        path.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        folder = cls(making)
        before, placed = None, False
        try:
            write_text(folder.experiment, experiment)
            write_text(folder.provenance, json.dumps(provenance, indent=2) + "\n")
            making.chmod(0o755)
            folder.lock()
            if archive is not None and RunFolder(path).experiment.is_file():
                with RunFolder(path).locked():
                    before = move_to_archive(path, archive)
            making.rename(path)  # fails where a folder with anything in it is
            placed = True
            fsync_folder(path.parent)
        except BaseException as error:
            folder.unlock()
            if placed:
                path.rename(making)
            if before is not None:
                before.rename(path)
            if archive is not None:
                remove_if_empty(archive)
            shutil.rmtree(making, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise RunExistsError(path) from None
            raise
        created = cls(path)
        created._lock = folder._lock
        return created

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        folder = cls(path)
        if not (folder_exists(path) and folder.experiment.is_file()):
            near = list_runs(path) if folder_exists(path) else list_runs(path.parent)
            raise UserError(f"there is no run {str(path)!r}; {suggest(str(path), [str(run.path) for run in near])}")
        return folder

    def lock(self) -> None:
        """One process at a time; the lock goes with its process, however that ends."""
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(f"the run {str(self.path)!r} is in progress in another process") from None
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    def is_locked(self) -> bool:
        return is_locked(self.path / ".lock")

    def read_metrics(self, rounds: int | None = None) -> list[dict[str, Any]]:
        """The first so many lines, or all; a last one that was cut off is passed over."""
        if not self.metrics.is_file():
            return []
        lines = self.metrics.read_bytes().split(b"\n")[:-1]
        try:
            read = [json.loads(line) for line in lines[:rounds]]
            if not all(isinstance(line, dict) and "round" in line for line in read):
                raise ValueError
            return read
        except ValueError:
            raise UserError(f"{str(self.metrics)!r} is damaged: every line must be JSON; {self._begin_anew}") from None

    @property
    def _begin_anew(self) -> str:
        """In another folder: what is in this one stays."""
        return f"start the run anew with `fedcm run {shlex.quote(str(self.experiment))}`"

    def keep_metrics(self, rounds: int) -> None:
        """Cut back to what a checkpoint stands on, which was on the disk before it."""
        lines = self.read_metrics(rounds)
        if [line["round"] for line in lines] != list(range(rounds)):
            raise UserError(
                f"{str(self.metrics)!r} must hold rounds 0 to {rounds - 1}, which the checkpoint stands on, and does "
                f"not; {self._begin_anew}"
            )
        write_text(self.metrics, "".join(map(_line, lines)))

    def clear_leftovers(self) -> None:
        """What a killed process was still writing."""
        for kind in (".metrics.*", ".summary.*", ".model.*", ".worker-*"):
            for leftover in self.path.glob(kind):
                leftover.unlink()

    def append(self, metrics: dict[str, Any]) -> None:
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(_line(metrics))
        except OSError as error:
            error.filename = str(self.metrics)  # of a full disk the system does not say where
            raise

    def flush_metrics(self) -> None:
        fsync_file(self.metrics)

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_text(self.summary, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def read_summary(self) -> dict[str, Any] | None:
        """None where there is none, or none that can be read: a resume then writes it again."""
        try:
            summary = json.loads(self.summary.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(summary, dict) and {"name", "outcome", "params_sha256"} <= set(summary)
        return summary if whole else None

    def write_model(self, tensors: dict[str, Any]) -> None:
        with atomic_write(self.model) as temporary:
            save_tensors(tensors, temporary)

    def is_of(self, job: str) -> bool:
        """Did this job, perhaps before a restart, begin the run?"""
        try:
            return json.loads(self.provenance.read_text(encoding="utf-8")).get("job") == job
        except (OSError, ValueError, AttributeError):
            return False

    def read_provenance(self) -> dict[str, Any]:
        try:
            provenance = json.loads(self.provenance.read_text(encoding="utf-8"))
            if not (isinstance(provenance, dict) and isinstance(provenance.get("data_sha256"), dict)):
                raise ValueError("it has no checksums of the data")
            return provenance
        except (OSError, ValueError) as error:
            raise UserError(f"{str(self.provenance)!r} cannot be read ({error}); {self._begin_anew}") from None


def list_runs(folder: Path, *, nested: bool = False) -> list[RunFolder]:
    """The runs in a folder, and if so asked in the folders in it, oldest first."""
    files = [*folder.glob("*/experiment.toml"), *(folder.glob("*/*/experiment.toml") if nested else ())]
    found: list[tuple[float, str, RunFolder]] = []
    for file in files:
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            with suppress(FileNotFoundError):  # another process has just moved it to the archive
                found.append((file.stat().st_mtime, file.parent.name, RunFolder(file.parent)))
    return [run for _, _, run in sorted(found, key=lambda one: one[:2])]


def folder_exists(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def free_name(folder: Path, name: str) -> str:
    """`name`, or `name-2`, `name-3`, … where that is taken."""
    names = (name if k == 1 else f"{name}-{k}" for k in itertools.count(1))
    return next(candidate for candidate in names if not (folder / candidate).exists())


def find_run_of_job(job: str, folder: Path) -> RunFolder | None:
    """The run among those in a folder that a job of several attempts began, if it came to that."""
    return next((run for run in list_runs(folder) if run.is_of(job)), None)


def make_provenance(
    checksums: dict[str, str],
    experiment_sha256: str,
    milliseconds_a_step: dict[str, float],
    job: str | None = None,
    constants_sha256: str | None = None,
) -> dict[str, Any]:
    return {
        "versions": read_versions(),
        "platform": platform.platform(),
        "cpu": describe_cpu(),
        "experiment_sha256": experiment_sha256,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(Path(part).name if k == 0 else part for k, part in enumerate(sys.argv)),
        "data_sha256": checksums,
        "milliseconds_a_step": milliseconds_a_step,
        **({"constants_sha256": constants_sha256} if constants_sha256 is not None else {}),
        **({"job": job} if job is not None else {}),
    }


def read_versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}}


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"


def _line(metrics: dict[str, Any]) -> str:
    return json.dumps(metrics, allow_nan=False) + "\n"
