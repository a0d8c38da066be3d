"""A run killed with SIGKILL at any moment and resumed ends with the same bits as one never stopped."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import go_on, lines_of, summary_of, whole

MOMENTS = 10


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_killed_run_goes_on_to_the_same_bits(experiment: Callable[..., Path], tmp_path: Path, moment: int) -> None:
    algorithm = ("fedcm", "scaffold", "feddyn", "fedadam", "fedavg")[moment % 5]
    path = experiment(algorithm={"name": algorithm}, rounds=200, checkpoints={"every": 3, "keep": 2})
    reference = whole(path, tmp_path / "runs")
    folder = tmp_path / "runs" / "killed"
    command = [sys.executable, "-m", "fedcm", "run", str(path), "--runs-dir", str(folder.parent), "--name", folder.name]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    draw = random.Random(os.getpid() * 1000 + moment)  # another moment every time: any of them must do
    kill_at = draw.randrange(160)
    while process.poll() is None and (rounds_in(folder) < kill_at or not folder.exists()):
        time.sleep(0.001)
    time.sleep(draw.random() * 0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL, "the run was over before the kill: give it more rounds"
    go_on(folder)
    assert lines_of(folder) == lines_of(reference)
    assert summary_of(folder)["params_sha256"] == summary_of(reference)["params_sha256"]
    assert (folder / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()


def rounds_in(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_ctrl_c_saves_and_says_how_to_go_on(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment(rounds=100_000, client={"lr": 0.01}, checkpoints={"every": 50_000})
    folder = tmp_path / "runs" / "interrupted"
    command = [sys.executable, "-m", "fedcm", "run", str(path), "--runs-dir", str(folder.parent), "--name", folder.name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while rounds_in(folder) < 20:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"fedcm resume {folder}" in err
    assert "Traceback" not in err
    saved = sorted((folder / "checkpoints").glob("*.json"))
    assert saved[-1].stem == f"round-{rounds_in(folder):06d}", "every finished round is saved"
