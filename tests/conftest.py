"""Fixtures of many tests: a small experiment on generated data, and the command line, called in this process."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import tomli_w
from scenes import Answer, small_experiment, write_npz

from fedcm.cli import main as cli

# plain modules of tests/settings: with this, their asserts show the compared values, as in test files
pytest.register_assert_rewrite("bench", "engines", "networks", "records", "sites", "splits", "trajectories")

# no test asserts a time, and a busy machine can make any example slow
hypothesis.settings.register_profile("fedcm", deadline=None)
hypothesis.settings.load_profile("fedcm")

# If the tests are started in the background or with nohup, these signals are ignored, and every process that a test
# starts would inherit this.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every run one worker by default, because the tests themselves use all cores."""
    monkeypatch.setenv("FEDCM_WORKERS", "1")


@pytest.fixture
def fedcm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """A function that calls the command line: `fedcm("run", path)`."""

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
    """A file with 240 training and 80 test examples of 6 features in 4 classes."""
    return write_npz(tmp_path / "made.npz")


@pytest.fixture
def experiment(tmp_path: Path, npz: Path) -> Callable[..., Path]:
    """A function that writes a small experiment with changes: `experiment(rounds=3)`."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "small.toml"
        path.write_text(tomli_w.dumps(small_experiment(npz, **changes)))
        return path

    return write
