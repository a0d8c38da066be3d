"""If a worker on this machine fails, the whole run ends and the error says why."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import find_worker_processes, make_command

Write = Callable[..., Path]

# FEDCM_RANK is set in workers, but not in rank 0
IN_A_WORKER = """
import os
import resource
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedcm

def out_of_memory(allocate):
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    allocate()

def numpy_memory():
    out_of_memory(lambda: np.ones(2**36))

def torch_memory():
    out_of_memory(lambda: torch.ones(2**36))

def busy():
    Path("busy").touch()
    for _ in range(600):
        time.sleep(0.1)

def mistake():
    Path("asleep").touch()
    while not Path("busy").exists():
        time.sleep(0.05)
    raise LookupError("out of luck")

def sleep():
    Path("asleep").touch()
    time.sleep(3600)

class InWorker(nn.Module):
    def __init__(self, does: str):
        super().__init__()
        self.linear, self.calls, self.does = nn.Linear(6, 4), 0, does

    def forward(self, x):
        self.calls += 1
        if "FEDCM_RANK" in os.environ and self.calls > 40:
            globals()[self.does]()
        return self.linear(x)

class RankZeroIsBusy(InWorker):
    def forward(self, x):
        if "FEDCM_RANK" not in os.environ:
            time.sleep(0.05)  # so that the worker is ahead
            if Path("asleep").exists():
                busy()
        return super().forward(x)

class Alone(nn.Linear):
    def __init__(self):
        super().__init__(6, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 40:
            raise LookupError("alone")
        return super().forward(x)

def model():
    if "FEDCM_RANK" in os.environ:
        raise LookupError("no model in a worker")
    return nn.Linear(6, 4)

def data():
    def client(number):
        draw = np.random.default_rng([os.getpid(), number])
        return draw.normal(size=(9, 6)).astype(np.float32), np.arange(9) % 4

    return fedcm.ClientsOnDemand(population=12, client=client, size=9, classes=4)
"""


@pytest.fixture
def run_command(tmp_path: Path) -> list[str]:
    (tmp_path / "failing.py").write_text(IN_A_WORKER)
    return make_command("run", "small.toml", "--runs-dir", tmp_path / "runs", "--name", "one", "--workers", 2)


def wait_for_end(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "error"),
    [pytest.param("numpy", "MemoryError", marks=pytest.mark.slow), ("torch", "allocate memory")],
)
def test_a_worker_out_of_memory_is_reported_with_its_client_and_line(
    experiment: Write, tmp_path: Path, run_command: list[str], library: str, error: str
) -> None:
    experiment(model={"name": "failing:InWorker", "does": f"{library}_memory"}, rounds=1000, client={"lr": 0.01})
    done = wait_for_end(run_command, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "failed in round" in done.stderr
    assert "on worker 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "failing.py, line " in done.stderr
    assert error in done.stderr
    assert f"fedcm resume {tmp_path / 'runs' / 'one'}" in done.stderr
    assert not find_worker_processes(tmp_path / "runs" / "one", rank_0=0)


@pytest.mark.slow
def test_a_busy_worker_ends_when_rank_0_is_killed(experiment: Write, tmp_path: Path, run_command: list[str]) -> None:
    experiment(model={"name": "failing:InWorker", "does": "sleep"}, rounds=1000, client={"lr": 0.01})
    process = subprocess.Popen(run_command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "asleep").exists():
        assert process.poll() is None
        time.sleep(0.05)
    assert find_worker_processes(tmp_path / "runs" / "one", process.pid)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while find_worker_processes(tmp_path / "runs" / "one", process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not find_worker_processes(tmp_path / "runs" / "one", process.pid)


@pytest.mark.slow
def test_a_worker_that_cannot_build_the_model_is_reported_with_the_line(
    experiment: Write, tmp_path: Path, run_command: list[str]
) -> None:
    experiment(model={"name": "failing:model"})
    done = wait_for_end(run_command, tmp_path)
    assert done.returncode != 0
    assert re.search(r"no model in a worker \(.*failing.py, line \d+\)", done.stderr)
    assert "Traceback" not in done.stderr
    assert "worker 1 on " in done.stderr


@pytest.mark.slow
def test_data_that_differ_between_workers_are_rejected(
    experiment: Write, tmp_path: Path, run_command: list[str]
) -> None:
    experiment(data={"source": "failing:data"}, split={"kind": "natural"})
    done = wait_for_end(run_command, tmp_path)
    assert done.returncode == 2, done.stderr
    assert "the data must be those of rank 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert sys.executable not in done.stderr


@pytest.mark.slow
def test_a_dead_worker_is_reported_while_rank_0_is_busy(
    experiment: Write, tmp_path: Path, run_command: list[str]
) -> None:
    experiment(model={"name": "failing:RankZeroIsBusy", "does": "sleep"}, rounds=1000, client={"lr": 0.01})
    process = subprocess.Popen(run_command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not ((tmp_path / "busy").exists() and (tmp_path / "asleep").exists()):
        time.sleep(0.05)
    (worker,) = find_worker_processes(tmp_path / "runs" / "one", process.pid)
    os.kill(worker, signal.SIGKILL)
    _, output = process.communicate(timeout=40)  # its client would take a minute
    assert process.returncode == 1
    assert "worker 1 was killed by SIGKILL while it trained client" in output
    assert "resume it with `fedcm resume" in output


@pytest.mark.slow
def test_an_exception_on_a_worker_is_reported_while_rank_0_is_busy(
    experiment: Write, tmp_path: Path, run_command: list[str]
) -> None:
    experiment(model={"name": "failing:RankZeroIsBusy", "does": "mistake"}, rounds=1000, client={"lr": 0.01})
    done = subprocess.run(run_command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "on worker 1" in done.stderr
    message = r"LookupError: out of luck \(.*failing.py, line \d+\); everything saved before is complete: resume it"
    assert re.search(message, done.stderr)


@pytest.mark.slow
def test_an_exception_without_workers_is_reported_with_its_client(
    experiment: Write, tmp_path: Path, run_command: list[str]
) -> None:
    experiment(model={"name": "failing:Alone"}, rounds=1000, client={"lr": 0.01})
    done = wait_for_end([*run_command[:-1], "1"], tmp_path)
    assert done.returncode == 1
    assert re.search(r"fedcm: client \d+ failed in round \d+", done.stderr)
    message = r"LookupError: alone \(.*failing.py, line \d+\); everything saved before is complete: resume it with"
    assert re.search(message, done.stderr)
