"""What several tests share: a small experiment on made data, and the command line called in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedcm import cli


@dataclass
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def fedcm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """The command line: `fedcm("run", path)`."""

    def call(*words: object) -> Answer:
        monkeypatch.setattr("sys.argv", ["fedcm", *map(str, words)])
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """240 examples of 6 features in 4 classes, and 80 more to test on."""
    return write_npz(tmp_path / "made.npz")


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
    } | changes


@pytest.fixture
def experiment(tmp_path: Path, npz: Path) -> Callable[..., Path]:
    """Writes a small experiment, changed where asked: `experiment(rounds=3)`."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "small.toml"
        path.write_text(tomli_w.dumps(small_experiment(npz, **changes)))
        return path

    return write
