"""Fixtures of the tests of errors."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from cli_errors import Fedcm, Write
from scenes import Answer

_MODULES = itertools.count()  # Python caches imported modules, so every module needs its own name


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in its own folder, and restore sys.path afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("FEDCM_DATA", raising=False)
    monkeypatch.delenv("FEDCM_RUNS", raising=False)


@pytest.fixture
def run(fedcm: Fedcm, tmp_path: Path) -> Fedcm:
    """A function that calls `fedcm run` with tmp_path/runs as its runs folder."""

    def call(path: object, *words: object) -> Answer:
        return fedcm("run", path, "--runs-dir", tmp_path / "runs", *words)

    return call


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], str]:
    """A function that writes a module into the current folder and returns its name."""

    def write(code: str) -> str:
        name = f"user_code_{next(_MODULES)}"
        (tmp_path / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{dedent(code)}")
        return name

    return write


@pytest.fixture
def stopped(run: Fedcm, experiment: Write, tmp_path: Path) -> Path:
    """The folder of a run of 12 rounds that stopped after 6."""
    assert run(experiment(rounds=6), "--name", "stopped").code == 0
    folder = tmp_path / "runs" / "stopped"
    for name in ("manifest.json", "summary.json"):
        (folder / name).unlink()
    toml = folder / "experiment.toml"
    toml.write_text(toml.read_text().replace("rounds = 6", "rounds = 12"))
    return folder
