"""What a person sees while rounds go by."""

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from fedcm import progress


def rounds(count: int) -> Iterator[dict[str, Any]]:
    for r in range(count):
        yield {"round": r, "loss": None if r == 1 else 0.5, **({"test_accuracy": 0.25} if r == 2 else {})}


def test_the_rounds_pass_through_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.shown(rounds(4), 4)) == list(rounds(4))
    assert list(progress.shown(rounds(4), 4, hidden=True)) == list(rounds(4))
    assert capsys.readouterr().out == ""


def test_plain_lines_end_with_the_last_round(capsys: pytest.CaptureFixture[str]) -> None:
    list(progress.shown(rounds(4), 4, title="demo"))
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"demo: round 4/4, loss 0\.500  accuracy 25\.00%  .*rounds/s, 0 s left", last)


def test_a_terminal_gets_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=120))
    list(progress.shown(rounds(4), 4, title="demo"))
    assert "4/4" in screen.getvalue()
    assert "accuracy 25.00%" in screen.getvalue()


def test_an_empty_round_is_told() -> None:
    assert "nobody took part" in progress._Line(0)({"round": 1, "loss": None})
