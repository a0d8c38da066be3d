"""Every test of a refusal works in a folder of its own."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from answers import Fedcm, Write
from scenes import Answer

_MODULES = itertools.count()  # an imported module is kept by Python, so every test needs a name of its own


@pytest.fixture(autouse=True)
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a folder of its own, and what it puts on Python's path goes again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("FEDCM_DATA", raising=False)
    monkeypatch.delenv("FEDCM_RUNS", raising=False)


@pytest.fixture
def run(fedcm: Fedcm, tmp_path: Path) -> Fedcm:
    """`fedcm run` into tmp_path/runs."""

    def call(path: object, *words: object) -> Answer:
        return fedcm("run", path, "--runs-dir", tmp_path / "runs", *words)

    return call


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], str]:
    """Writes a module into the current folder and gives its name."""

    def write(code: str) -> str:
        name = f"users_own_{next(_MODULES)}"
        (tmp_path / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{dedent(code)}")
        return name

    return write


@pytest.fixture
def stopped(run: Fedcm, experiment: Write, tmp_path: Path) -> Path:
    """A run of 12 rounds that stopped after 6."""
    assert run(experiment(rounds=6), "--name", "stopped").code == 0
    folder = tmp_path / "runs" / "stopped"
    (folder / "summary.json").unlink()
    toml = folder / "experiment.toml"
    toml.write_text(toml.read_text().replace("rounds = 6", "rounds = 12"))
    return folder
