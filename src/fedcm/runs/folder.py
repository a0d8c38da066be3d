"""A run's folder.

experiment.toml    the experiment with every default filled in; `fedcm run` accepts it
provenance.json    versions, the CPU, checksums of the data, date and command
metrics.jsonl      one line per round
checkpoints/       the newest states
clients/           the client states, if the algorithm has any
summary.json       written when the run ends
model.safetensors  the trained model, by parameter name
client_results.json  the results of each client in the last evaluation, if clients have test data of their own
best.safetensors   the model of the best round on validation data, if there are any
manifest.json      the size and sha256 of each of these files, written last; a changed file is not read
"""

import errno
import fcntl
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, final

from fedcm.config.overrides import read_table
from fedcm.errors import UserError, suggest
from fedcm.runs.archive import move_to_archive, remove_if_empty
from fedcm.runs.evidence.manifest import EVIDENCE, HAS_MANIFEST, MANIFEST, DamagedRunError, read_evidence
from fedcm.system.files import (
    atomic_write,
    find_wrong_kind,
    fsync_file,
    fsync_folder,
    is_locked,
    read_umask,
    write_text,
)
from fedcm.system.storage.tensor_files import save_tensors


class RunExistsError(UserError):
    """A run, or another file or folder, has this name already."""

    def __init__(self, path: Path) -> None:
        advice = (
            f"resume it with `fedcm resume {shlex.quote(str(path))}`, choose another name, or use `fresh` to replace it"
        )
        if RunFolder(path).experiment.is_file():
            super().__init__(f"the run {str(path)!r} exists already; {advice}")
        else:
            super().__init__(
                f"{str(path)!r} exists already and is not a run; choose another name, or another folder of runs"
            )


@final
class RunFolder:
    """The files of one run."""

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
        self.client_results = path / "client_results.json"
        self.best = path / "best.safetensors"
        self._lock: int | None = None

    @classmethod
    def create(
        cls, path: Path, experiment: str, provenance: dict[str, Any], *, archive: Path | None = None
    ) -> "RunFolder":
        """Create a locked folder. It appears complete, or not at all.

        Args:
            path: The new folder.
            experiment: The experiment as TOML.
            provenance: The contents of provenance.json.
            archive: Folder that an existing run at `path` is moved to.

        Raises:
            RunExistsError: If `path` exists, and it is not a run that `archive` takes.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        folder = cls(temporary)
        archived, placed = None, False
        try:
            write_text(folder.experiment, experiment)
            write_text(folder.provenance, json.dumps(provenance, indent=2) + "\n")
            temporary.chmod(0o777 & ~read_umask())
            folder.lock()
            if archive is not None and RunFolder(path).experiment.is_file():
                with RunFolder(path).hold_lock():
                    archived = move_to_archive(path, archive)
            temporary.rename(path)  # fails if a folder with files is there
            placed = True
            fsync_folder(path.parent)
        except BaseException as error:
            folder.unlock()
            if placed:
                path.rename(temporary)
            if archived is not None:
                archived.rename(path)
            if archive is not None:
                remove_if_empty(archive)
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise RunExistsError(path) from None
            raise
        created = cls(path)
        created._lock = folder._lock
        return created

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run; raise a UserError that suggests similar names if there is none."""
        folder = cls(path)
        folder.reject_wrong_kinds()
        if not (folder_exists(path) and folder.experiment.is_file()):
            others = list_runs(path) if folder_exists(path) else list_runs(path.parent)
            raise UserError(f"there is no run {str(path)!r}; {suggest(str(path), [str(run.path) for run in others])}")
        return folder

    def reject_wrong_kinds(self) -> None:
        """Raise a UserError if there is a folder or a broken link in place of one of the run's files, or the reverse.

        Nothing else is read. A resume would fail on it after it has begun to change the run.
        """
        folders = [self.checkpoints, self.client_states.parent]
        files = [self.path / name for name in (*EVIDENCE, MANIFEST, ".lock")]
        try:
            files += [self.client_states, *self.checkpoints.glob("round-*")]
            wrong = [found for folder in folders if (found := find_wrong_kind(folder, "folder"))]
            wrong += [found for file in files if (found := find_wrong_kind(file))]
        except OSError:  # a name that is too long, for example
            return
        if wrong:
            raise UserError(f"{wrong[0]}; move it away, or restore the run from a copy")

    def lock(self) -> None:
        """Lock the run for this process. The lock ends with the process, however that ends."""
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(f"the run {str(self.path)!r} is in progress in another process") from None
        self._lock = descriptor

    def unlock(self) -> None:
        """Release the lock; do nothing if this object does not hold it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the lock in a `with` block."""
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    def is_locked(self) -> bool:
        """Return whether any process holds the lock."""
        return is_locked(self.path / ".lock")

    def read_outcome(self) -> Literal["finished", "diverged", "running", "stopped"]:
        """Return how the run ended, or whether it is in progress."""
        running = self.is_locked()  # before the summary, which a run writes before it unlocks its folder
        if (summary := self.read_summary()) is not None:
            return summary["outcome"]
        return "running" if running else "stopped"

    def read_metrics(self, rounds: int | None = None) -> list[dict[str, Any]]:
        """Return the metrics of the first `rounds` rounds, or of all. An incomplete last line is skipped."""
        data = read_evidence(self.metrics)
        lines = data.split(b"\n")[:-1] if data is not None else []
        try:
            read = [json.loads(line) for line in lines[:rounds]]
            if not all(isinstance(line, dict) and "round" in line for line in read):
                raise ValueError
            return read
        except ValueError:
            raise UserError(f"{str(self.metrics)!r} is damaged: every line must be JSON; {self._advice}") from None

    @property
    def _advice(self) -> str:
        return f"start a new run with `fedcm run {shlex.quote(str(self.experiment))}`"

    def rewrite_experiment(self, experiment: str) -> None:
        """Replace experiment.toml and keep its date, by which runs are ordered."""
        if experiment != self.experiment.read_text(encoding="utf-8"):
            before = self.experiment.stat()
            write_text(self.experiment, experiment)
            os.utime(self.experiment, ns=(before.st_atime_ns, before.st_mtime_ns))

    def truncate_metrics(self, rounds: int) -> None:
        """Keep the metrics of the first `rounds` rounds, those before the checkpoint."""
        lines = self.read_metrics(rounds)
        if [line["round"] for line in lines] != list(range(rounds)):
            raise UserError(
                f"{str(self.metrics)!r} must hold the rounds before the checkpoint, 0 to {rounds - 1}, and does "
                f"not; {self._advice}"
            )
        write_text(self.metrics, "".join(map(_to_line, lines)))

    def clear_leftovers(self) -> None:
        """Remove the temporary files of a process that was killed."""
        names = ("metrics", "summary", "model", "best", "client_results", "manifest")
        for kind in (*(f".{name}.*" for name in names), ".worker-*"):
            for leftover in self.path.glob(kind):
                leftover.unlink()

    def append(self, metrics: dict[str, Any]) -> None:
        """Append the metrics of one round."""
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(_to_line(metrics))
        except OSError as error:
            error.filename = str(self.metrics)  # the system does not say which file did not fit
            raise

    def flush_metrics(self) -> None:
        """Wait until the metrics are on the disk."""
        fsync_file(self.metrics)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        write_text(self.summary, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def read_summary(self) -> dict[str, Any] | None:
        """Return the summary; None if there is none, or the run was killed before it wrote the manifest.

        Without a manifest, None also stands for a damaged summary; a resume writes it again.

        Raises:
            UserError: If the summary was changed after the run ended, or is a folder or a broken link.
        """
        try:
            summary = json.loads(read_evidence(self.summary) or b"")
        except UserError:
            raise
        except ValueError:
            return None
        complete = isinstance(summary, dict) and {"name", "outcome", "params_sha256"} <= set(summary)
        has_ended = complete and (HAS_MANIFEST not in summary or (self.path / MANIFEST).is_file())
        return summary if has_ended else None

    def write_model(self, tensors: dict[str, Any]) -> None:
        """Write model.safetensors."""
        with atomic_write(self.model) as temporary:
            save_tensors(tensors, temporary)

    def write_best_model(self, tensors: dict[str, Any], round: int) -> None:
        """Write best.safetensors; its metadata name the round."""
        with atomic_write(self.best) as temporary:
            save_tensors(tensors, temporary, {"round": str(round)})

    def write_client_results(self, results: Mapping[str, Any]) -> None:
        """Write client_results.json."""
        write_text(self.client_results, json.dumps(results, allow_nan=False) + "\n")

    def read_client_results(self) -> dict[str, Any] | None:
        """Return the contents of client_results.json; None if there is none, or it cannot be read.

        Raises:
            UserError: If the file was changed after the run ended, or is a folder or a broken link.
        """
        try:
            results = json.loads(read_evidence(self.client_results) or b"")
        except UserError:
            raise
        except ValueError:
            return None
        return results if isinstance(results, dict) and isinstance(results.get("round"), int) else None

    def read_best_round(self) -> int | None:
        """Return the round of best.safetensors; None if there is none, or it cannot be read."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.best, "pt") as file:
                return int(file.metadata()["round"])
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return None

    def read_device(self) -> str:
        """Return where the run computes: "cpu" or "cuda"; "cpu" if its experiment does not say it."""
        engine = read_table(self.experiment).get("engine")
        device = engine.get("device") if isinstance(engine, dict) else None
        return device if isinstance(device, str) else "cpu"

    def was_started_by(self, job: str) -> bool:
        """Return whether this torchrun job started the run, perhaps before a restart."""
        try:
            return self.try_read_provenance().get("job") == job
        except DamagedRunError:
            return False

    def read_provenance(self) -> dict[str, Any]:
        """Return the contents of provenance.json."""
        try:
            provenance = json.loads(read_evidence(self.provenance) or b"")
            if not (isinstance(provenance, dict) and isinstance(provenance.get("data_sha256"), dict)):
                raise ValueError("it has no checksums of the data")
            return provenance
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{str(self.provenance)!r} cannot be read ({error}); {self._advice}") from None

    def try_read_provenance(self) -> dict[str, Any]:
        """Return the contents of provenance.json; empty if it cannot be read.

        Raises:
            DamagedRunError: If the file was changed after the run ended.
        """
        try:
            provenance = json.loads(read_evidence(self.provenance) or b"")
        except DamagedRunError:
            raise
        except ValueError:
            return {}
        return provenance if isinstance(provenance, dict) else {}


def list_runs(folder: Path, *, nested: bool = False) -> list[RunFolder]:
    """Return the runs in a folder, oldest first; with `nested`, also the runs in its subfolders."""
    files = [*folder.glob("*/experiment.toml"), *(folder.glob("*/*/experiment.toml") if nested else ())]
    found: list[tuple[float, str, RunFolder]] = []
    for file in files:
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            with suppress(FileNotFoundError):  # another process may move it to the archive just now
                found.append((file.stat().st_mtime, file.parent.name, RunFolder(file.parent)))
    return [run for _, _, run in sorted(found, key=lambda one: one[:2])]


def folder_exists(path: Path) -> bool:
    """Return whether the path is a folder; False for names that the system does not accept."""
    try:
        return path.is_dir()
    except OSError:
        return False


def find_run(run: Path, runs_dir: Path) -> RunFolder:
    """Open a run, given its folder or its name in the folder of runs.

    Raises:
        UserError: If there is no such run.
    """
    is_plain_word = len(run.parts) == 1 and not os.path.lexists(run)
    is_name = not folder_exists(run) and (folder_exists(runs_dir / run) or is_plain_word)
    return RunFolder.open(runs_dir / run if is_name else run)


def reject_file_as_folder(folder: Path) -> None:
    """Raise a UserError if a folder of runs cannot be created, because it or a folder around it is a file."""
    with suppress(OSError):  # a name that is too long, for example; creating the folder reports it
        existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
        if existing is not None and not existing.is_dir():
            raise UserError(f"runs_dir must be a folder, and {str(existing)!r} is a file; give another folder")


def find_run_of_job(job: str, folder: Path) -> RunFolder | None:
    """Return the run in `folder` that a torchrun job started before a restart; None if there is none."""
    return next((run for run in list_runs(folder) if run.was_started_by(job)), None)


def _to_line(metrics: dict[str, Any]) -> str:
    return json.dumps(metrics, allow_nan=False) + "\n"
