"""Small experiments on generated data, and runs of them that finish, stop or resume."""

import contextlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import Stopped
from fedcm.runs.session import Session, SessionOptions
from fedcm.system.callbacks import Notify


@dataclass
class Answer:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def write_npz(path: Path) -> Path:
    """Write 240 training and 80 test examples of 6 features in 4 classes."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(320, 6)).astype(np.float32)
    y = (x @ generator.normal(size=(6, 4))).argmax(1)
    np.savez(path, x_train=x[:240], y_train=y[:240], x_test=x[240:], y_test=y[240:])
    return path


def small_experiment(source: Path | str, **changes: Any) -> dict[str, Any]:
    """Return the table of a small experiment; `changes` replace top-level keys."""
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


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Read the metrics of a run, without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def forget_manifest(folder: Path) -> Path:
    """Turn a finished run into one of an older version, whose files may be changed unnoticed."""
    (folder / "manifest.json").unlink()
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    del summary["manifest"]
    file.write_text(json.dumps(summary))
    return folder


def run_to_end(path: Path, runs: Path, name: str = "whole") -> Path:
    finish_session(Session.start(read_experiment(read_table(path)), runs, name))
    return runs / name


def run_and_stop_after(rounds: int, path: Path, runs: Path, name: str) -> Path:
    """Run an experiment and stop it after that many rounds, in the middle of a round, as Ctrl-C does."""
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return len(done) >= rounds and calls % 2 == 0

    done: list[Any] = []
    session = Session.start(read_experiment(read_table(path)), runs, name, options=SessionOptions(stop_requested=stop))
    with session, contextlib.suppress(Stopped):
        for metrics in session.rounds():
            done.append(metrics)  # noqa: PERF402 - `stop` watches it grow
        raise AssertionError("the run was not stopped")
    return runs / name


def finish_session(session: Session, *, diagnose_every: int | None = None) -> list[dict[str, Any]]:
    """Run the remaining rounds of a session and close it; return their metrics."""
    with session:
        return [metrics.to_dict() for metrics in session.rounds(diagnose_every=diagnose_every)]


def load_summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def resume_run(folder: Path, notify: Notify = print) -> None:
    finish_session(Session.resume(folder, options=SessionOptions(notify=notify)))


def get_private_mount_command() -> tuple[str, ...]:
    """Return the prefix that gives a command private mounts; skip the test if the system does not allow that."""
    words = ("unshare", "--user", "--map-root-user", "--mount")
    if shutil.which("unshare") is not None:
        tried = subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False)
        if tried.returncode == 0:
            return words
    pytest.skip("this system does not allow private mounts")
