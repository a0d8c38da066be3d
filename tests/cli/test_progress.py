"""The progress of runs and sweeps on a terminal, and as plain lines elsewhere."""

import io
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedcm.api import progress
from fedcm.cli.terminal import sweep_progress
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.tasks import SweepTask


def rounds(count: int) -> Iterator[dict[str, Any]]:
    for r in range(count):
        yield {"round": r, "loss": None if r == 1 else 0.5, **({"test_accuracy": 0.25} if r == 2 else {})}


def test_the_rounds_pass_through_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.show_progress(rounds(4), 4)) == list(rounds(4))
    assert list(progress.show_progress(rounds(4), 4, hidden=True)) == list(rounds(4))
    assert capsys.readouterr().out == ""


def test_plain_lines_end_with_the_last_round(capsys: pytest.CaptureFixture[str]) -> None:
    list(progress.show_progress(rounds(4), 4, title="demo"))
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"demo: round 4/4, loss 0\.500  accuracy 25\.00%  .*rounds/s, 0 s left", last)


def test_a_terminal_gets_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=120))
    list(progress.show_progress(rounds(4), 4, title="demo"))
    assert "4/4" in screen.getvalue()
    assert "accuracy 25.00%" in screen.getvalue()


def test_an_empty_cohort_is_shown() -> None:
    assert "empty cohort" in progress._RoundFormatter(0)({"round": 1, "loss": None})


def test_plain_lines_of_a_sweep_show_the_remaining_time_from_the_first_line_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], experiment: Callable[..., Path]
) -> None:
    """Progress is polled more often than it is printed, so the pace is known before the first line."""
    clock = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 3)
    monkeypatch.setattr(sweep_progress, "_PLAIN_EVERY", 3.0)
    task = SweepTask(
        GridRun("long", read_experiment(read_table(experiment(rounds=50)))), RunFolder(Path("long")), outcome="running"
    )

    def poll() -> Iterator[SweepTask | None]:
        for _ in range(10):
            task.rounds_done += 1
            yield None

    list(sweep_progress.show_sweep_progress(poll(), [task], jobs=1))
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(re.fullmatch(r"long \d+/50; \d+ s left for all runs", line) for line in lines)


def test_a_long_name_does_not_hide_the_finished_rounds(
    monkeypatch: pytest.MonkeyPatch, experiment: Callable[..., Path]
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sweep_progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=80))
    name = "small-participation.probability=0.02-evaluation.targets=0.5+0.6+0.7-client.lr=0.1-fedcm-seed3"
    task = SweepTask(
        GridRun(name, read_experiment(read_table(experiment(rounds=50)))),
        RunFolder(Path(name)),
        outcome="running",
        rounds_done=7,
    )
    list(sweep_progress.show_sweep_progress(iter([None, None]), [task], jobs=1))
    assert screen.getvalue().count("7/50") >= 2, "of all rounds, and of the run's"
