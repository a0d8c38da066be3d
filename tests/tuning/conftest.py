"""Fixtures of the tests of tuning: trials without processes."""

from collections.abc import Callable
from typing import Any

import pytest
from scripted_runs import ScriptedRuns, train_at_once


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedRuns]:
    """A function that replaces the processes of trials by scripted ones: `script(curve)`."""

    def replace(*arguments: Any) -> ScriptedRuns:
        runs = ScriptedRuns(*arguments)
        monkeypatch.setattr("fedcm.tuning.search.start_run_process", runs)
        monkeypatch.setattr("fedcm.tuning.search._POLL", 0.0)
        return runs

    return replace


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train all runs of a tuning in this process, which is faster than a process for each."""
    for module in ("fedcm.tuning.search", "fedcm.sweeps.run_parallel"):
        monkeypatch.setattr(f"{module}.start_run_process", train_at_once)
        monkeypatch.setattr(f"{module}._POLL", 0.0)
