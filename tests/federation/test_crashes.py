"""A site may end a job for the others twice; after that, jobs continue without it."""

import time

import pytest

from fedcm.federation.gate.crashes import CrashCounter


def test_the_third_crash_of_a_site_within_the_window_does_not_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    counter = CrashCounter()
    assert [counter.add("a"), counter.add("a"), counter.add("b"), counter.add("a")] == [False, False, False, True]
    now[0] = 3601.0
    assert [counter.add("a"), counter.add("a"), counter.add("a")] == [False, False, True]
