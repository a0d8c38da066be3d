"""If the disk gets full, a run ends with one sentence, loses nothing saved, and resumes to the same bits."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from scenes import Answer, get_private_mount_command, load_summary, read_lines, run_to_end

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs.archive import make_archive_path
from fedcm.runs.folder import RunFolder
from fedcm.runs.session import Session
from fedcm.system.storage import tensor_files

Write = Callable[..., Path]
FULL = "No space left on device"


class FullDisk:
    """Replaces all functions that write: from a given write on, each writes half of its data and raises an error."""

    def __init__(self, patch: pytest.MonkeyPatch, watched: Path) -> None:
        self.writes, self.full_at = 0, sys.maxsize
        self.watched = watched
        self.saved: dict[Path, bytes] = {}  # complete checkpoints when the disk got full
        for place, name, half in (
            (os, "pwrite", _write_half_state),
            (os, "fsync", lambda real, file: None),
            (Path, "write_bytes", _write_half_file),
            (RunFolder, "append", _write_half_line),
            (tensor_files, "save_file", _write_half_tensors),
        ):
            patch.setattr(place, name, self.wrap(getattr(place, name), half))

    def wrap(self, real: Callable[..., Any], half: Callable[..., Any]) -> Callable[..., Any]:
        def write(*words: Any) -> Any:
            self.writes += 1
            if self.writes < self.full_at:
                return real(*words)
            if self.writes == self.full_at:
                self.saved = read_complete_checkpoints(self.watched)
            half(real, *words)
            raise OSError(errno.ENOSPC, FULL)

        return write


def _write_half_state(real: Callable[..., int], file: int, data: Any, place: int) -> None:
    real(file, data[: len(data) // 2], place)


def _write_half_file(real: Callable[..., int], path: Path, data: bytes) -> None:
    real(path, data[: len(data) // 2])


def _write_half_line(real: Callable[..., None], folder: RunFolder, metrics: dict[str, Any]) -> None:
    with folder.metrics.open("a") as file:
        file.write('{"round": 0, "loss": 1')


def _write_half_tensors(real: Callable[..., None], tensors: Any, path: Path, metadata: Any) -> None:
    real(tensors, path, metadata)
    os.truncate(path, path.stat().st_size // 2)
    raise SafetensorError(f"I/O error: {FULL} (os error 28)")


def read_complete_checkpoints(folder: Path) -> dict[Path, bytes]:
    notes = sorted((folder / "checkpoints").glob("round-*.json"))
    return {path: path.read_bytes() for note in notes for path in (note, note.with_suffix(".safetensors"))}


@pytest.mark.parametrize("algorithm", [pytest.param("fedcm", marks=pytest.mark.slow), "scaffold"])
def test_nothing_saved_is_lost_whichever_write_fails(
    experiment: Write, fedcm: Callable[..., Answer], tmp_path: Path, algorithm: str
) -> None:
    path = experiment(
        algorithm={"name": algorithm},
        rounds=5,
        participation={"kind": "fixed", "clients": 2},
        checkpoints={"every": 2, "keep": 2},
    )
    reference = run_to_end(path, tmp_path / "reference")
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(patch, tmp_path)
        run_to_end(path, tmp_path / "counted")
    for position in range(1, disk.writes + 1):
        what = f"write {position} of {disk.writes}"
        folder = tmp_path / f"run-{position}" / "one"
        with pytest.MonkeyPatch.context() as patch:
            disk_now = FullDisk(patch, folder)
            disk_now.full_at = position
            answer = fedcm("run", path, "--runs-dir", folder.parent, "--name", "one")
            assert answer.code == (1 if folder.exists() else 2), what
            errors = [line for line in answer.err.splitlines() if line.startswith("fedcm: ")]
            assert len(errors) == 1, what
            assert FULL in errors[0], what
            assert "Traceback" not in answer.err, what
            if folder.exists():
                assert f"fedcm resume {folder}" in errors[0], what
                again = fedcm("resume", folder)
                finished = "has finished already" in again.err  # all was written, and the last flush failed
                assert finished == (position == disk.writes), what
                assert again.code == (0 if finished else 1), f"{what}: the disk is still full"
                assert finished or FULL in again.err, what
        for file, content in disk_now.saved.items():
            assert file.read_bytes() == content, what
        if folder.exists():
            assert fedcm("resume", folder).code == 0, what
        else:
            assert not list(folder.parent.iterdir()), f"{what}: nothing half-made is left"
            run_to_end(path, folder.parent, "one")
        assert read_lines(folder) == read_lines(reference), what
        assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"], what
        assert not list(folder.rglob(".*.*")), what


def test_a_run_that_cannot_be_replaced_stays_unchanged(experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=2)
    folder = run_to_end(path, tmp_path / "runs", "one")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    archive = make_archive_path(folder.parent)
    position, replaced = 0, False
    while not replaced:
        position += 1
        with pytest.MonkeyPatch.context() as patch:
            FullDisk(patch, folder).full_at = position
            try:
                Session.start(read_experiment(read_table(path)), folder.parent, "one", archive=archive).folder.unlock()
                replaced = True
            except OSError:
                assert {file: file.read_bytes() for file in before} == before, f"write {position}"
                assert list(folder.parent.iterdir()) == [folder]
    assert position > 6
    assert not (folder / "metrics.jsonl").exists()
    moved = archive / "one"
    assert {file: (moved / file.relative_to(folder)).read_bytes() for file in before} == before


def write_experiment_with_large_states(experiment: Write) -> Path:
    """Write an experiment with client states of 9 kB and checkpoints of 18 kB, so that the states fill the disk."""
    return experiment(
        algorithm={"name": "scaffold"}, model={"name": "mlp", "hidden": [200]}, checkpoints={"every": 1, "keep": 2}
    )


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_client_state_that_cannot_be_written_ends_the_run_with_one_sentence(
    experiment: Write, tmp_path: Path, workers: int
) -> None:
    path = write_experiment_with_large_states(experiment)
    reference = run_to_end(path, tmp_path / "reference")
    folder = tmp_path / "runs" / "one"
    words = [sys.executable, "-m", "fedcm"]
    where = ["--runs-dir", str(folder.parent), "--name", "one", "--workers", str(workers)]
    run = subprocess.run(
        [*words, "run", str(path), *where],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert run.stderr.count("fedcm: ") == 1, run.stderr
    assert "File too large" in run.stderr
    assert "Traceback" not in run.stderr
    assert 0 < len(read_lines(folder)) < 12
    done = subprocess.run([*words, "resume", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read_lines(folder) == read_lines(reference)


@pytest.mark.slow
def test_a_run_resumes_after_a_real_disk_was_full(experiment: Write, tmp_path: Path) -> None:
    path, private = write_experiment_with_large_states(experiment), get_private_mount_command()
    reference = run_to_end(path, tmp_path / "reference")
    (tmp_path / "small").mkdir()
    script = (
        'mount -t tmpfs -o size=160k none small && "$0" -m fedcm run "$1" --runs-dir small --name one --workers 2; '
        'echo "code $?"; mount -o remount,size=20m small && "$0" -m fedcm resume small/one && cp -r small/one kept'
    )
    words = [*private, "sh", "-c", script, sys.executable, str(path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "code 1\n" in done.stdout
    assert FULL in done.stderr
    assert "Traceback" not in done.stderr
    assert "resumes at round" in done.stderr
    assert read_lines(tmp_path / "kept") == read_lines(reference)
    assert load_summary(tmp_path / "kept")["params_sha256"] == load_summary(reference)["params_sha256"]
