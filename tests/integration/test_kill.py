"""A run killed with SIGKILL at any moment and resumed ends with the same bits as one never stopped."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import load_summary, read_lines, resume_run, run_to_end

MOMENTS = 6


@pytest.mark.parametrize(
    "moment", [0, MOMENTS - 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, MOMENTS - 1))]
)
def test_a_killed_run_resumes_to_the_same_bits(experiment: Callable[..., Path], tmp_path: Path, moment: int) -> None:
    """The moments: before the folder exists, during the rounds, or while the last files are written."""
    algorithm = ("fedcm", "scaffold", "feddyn", "fedadam", "fedavg")[moment % 5]
    path = experiment(algorithm={"name": algorithm}, rounds=100, checkpoints={"every": 3, "keep": 2})
    reference = run_to_end(path, tmp_path / "runs")
    folder = tmp_path / "runs" / "killed"
    process = subprocess.Popen(make_run_command(folder, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    draw = random.Random(moment)
    kill_at = {0: 0, 1: 100}.get(moment, draw.randrange(1, 95))
    delay = draw.random() * (2.0 if moment == 0 else 0.02)
    while process.poll() is None and count_rounds(folder) < kill_at:
        time.sleep(0.0005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    what = f"{algorithm}, killed {delay:.4f} s after {kill_at} rounds, with {count_rounds(folder)} on the disk"
    if not folder.exists():  # killed before the folder existed: start the run
        run_to_end(path, tmp_path / "runs", "killed")
    resume_run(folder)
    assert read_lines(folder) == read_lines(reference), what
    assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"], what
    assert (folder / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes(), what
    assert not list(folder.rglob(".*.*")), "nothing half-written is left"


def make_run_command(folder: Path, experiment: Path) -> list[str]:
    where = ["--runs-dir", str(folder.parent), "--name", folder.name]
    return [sys.executable, "-m", "fedcm", "run", str(experiment), *where]


def count_rounds(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_ctrl_c_saves_and_says_how_to_resume(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment(rounds=100_000, client={"lr": 0.01}, checkpoints={"every": 50_000})
    folder = tmp_path / "runs" / "interrupted"
    process = subprocess.Popen(
        make_run_command(folder, path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while count_rounds(folder) < 20:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"fedcm resume {folder}" in err
    assert "Traceback" not in err
    saved = sorted((folder / "checkpoints").glob("*.json"))
    assert saved[-1].stem == f"round-{count_rounds(folder):06d}", "every finished round is saved"
