"""Fixtures of the tests of tuning: trials without processes."""

from collections.abc import Callable
from typing import Any

import pytest
from scripted_runs import ScriptedRuns, train_at_once

from fedcm.sweeps.run_process import RunLauncher, RunProcess


def _replace_start(monkeypatch: pytest.MonkeyPatch, start: Callable[..., RunProcess]) -> None:
    def start_here(launcher: RunLauncher, *arguments: Any) -> RunProcess:
        return start(*arguments, launcher.scratch)

    monkeypatch.setattr(RunLauncher, "start", start_here)
    monkeypatch.setattr("fedcm.sweeps.run_process.is_fork_safe", lambda: False)  # nothing to fork


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedRuns]:
    """A function that replaces the processes of trials by scripted ones: `script(curve)`."""

    def replace(*arguments: Any) -> ScriptedRuns:
        runs = ScriptedRuns(*arguments)
        _replace_start(monkeypatch, runs)
        monkeypatch.setattr("fedcm.tuning.search._POLL", 0.0)
        return runs

    return replace


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train all runs of a tuning in this process, which is faster than a process for each."""
    _replace_start(monkeypatch, train_at_once)
    for module in ("fedcm.tuning.search", "fedcm.sweeps.run_parallel"):
        monkeypatch.setattr(f"{module}._POLL", 0.0)
