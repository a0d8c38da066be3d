"""Small experiments on made data, and runs of them that are whole, stopped or resumed."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import Stopped
from fedcm.runs.running import drive
from fedcm.runs.starting import begin, resume


@dataclass
class Answer:
    code: int
    out: str
    err: str


def write_npz(path: Path) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(320, 6)).astype(np.float32)
    y = (x @ draw.normal(size=(6, 4))).argmax(1)
    np.savez(path, x_train=x[:240], y_train=y[:240], x_test=x[240:], y_test=y[240:])
    return path


def small_experiment(source: Path | str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "rounds": 12,
        "seed": 3,
        "data": {"source": str(source)},
        "split": {"kind": "dirichlet", "clients": 12, "concentration": 0.6},
        "participation": {"kind": "independent", "probability": 0.3},
        "model": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "fedcm", "alpha": 0.1},
        "client": {"epochs": 2, "batch_size": 7, "lr": 0.1, "lr_decay": 0.99, "weight_decay": 0.001},
        "evaluation": {"every": 3},
        "checkpoints": {"every": 2, "keep": 3},
        "engine": {"stack": 1, "layout": "channels_last", "compile": "off"},
    } | changes


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics, times aside."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def whole(path: Path, runs: Path, name: str = "whole") -> Path:
    for _ in drive(begin(read_experiment(read_table(path)), runs, name)):
        pass
    return runs / name


def stopped_after(rounds: int, path: Path, runs: Path, name: str) -> Path:
    """As Ctrl-C would do it: in the middle of a round."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return len(done) >= rounds and asked % 2 == 0

    done: list[Any] = []
    run = begin(read_experiment(read_table(path)), runs, name, stop_requested=stop)
    with contextlib.suppress(Stopped):
        for metrics in drive(run):
            done.append(metrics)  # noqa: PERF402 - `stop` watches it grow
        raise AssertionError("the run was not stopped")
    return runs / name


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def go_on(folder: Path, say: Callable[[str], None] = print) -> None:
    for _ in drive(resume(folder, say=say)):
        pass


def private_mounts() -> tuple[str, ...]:
    """What gives a command mounts of its own; the test is skipped where the system does not allow that."""
    words = ("unshare", "--user", "--map-root-user", "--mount")
    if shutil.which("unshare") is not None:
        tried = subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False)
        if tried.returncode == 0:
            return words
    pytest.skip("this system does not let a test mount anything")
