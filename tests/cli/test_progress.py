"""What a person sees while rounds go by."""

import io
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedcm.cli.terminal import sweep_progress
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs import progress
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


def test_an_empty_round_is_told() -> None:
    assert "empty cohort" in progress._Line(0)({"round": 1, "loss": None})


def test_off_a_terminal_the_time_left_is_known_by_the_first_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], experiment: Callable[..., Path]
) -> None:
    """A look a second, a line every three: one that looked only for its line would not know yet."""
    clock = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 3)
    monkeypatch.setattr(sweep_progress, "_PLAIN_EVERY", 3.0)
    task = SweepTask(
        GridRun("long", read_experiment(read_table(experiment(rounds=50)))), RunFolder(Path("long")), state="running"
    )

    def passing() -> Iterator[SweepTask | None]:
        for _ in range(10):
            task.done += 1
            yield None

    list(sweep_progress.show_sweep_progress(passing(), [task], jobs=1))
    told = capsys.readouterr().err.splitlines()
    assert told
    assert all(re.fullmatch(r"long \d+/50; \d+ s left for all runs", line) for line in told)


def test_a_long_name_leaves_room_for_how_far_a_run_is(
    monkeypatch: pytest.MonkeyPatch, experiment: Callable[..., Path]
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sweep_progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=80))
    name = "small-participation.probability=0.02-evaluation.targets=0.5+0.6+0.7-client.lr=0.1-fedcm-seed3"
    task = SweepTask(
        GridRun(name, read_experiment(read_table(experiment(rounds=50)))),
        RunFolder(Path(name)),
        state="running",
        done=7,
    )
    list(sweep_progress.show_sweep_progress(iter([None, None]), [task], jobs=1))
    assert screen.getvalue().count("7/50") >= 2, "of all rounds, and of the run's"
