"""Asked once, a command stops when it can; asked twice, at once; and the end of a terminal is no second time."""

import signal
import subprocess
import sys

import pytest

from fedcm.system.signals import StopSignals

WATCHED = """
import os, sys, time
from fedcm.system.processes import when_parent_is_gone
when_parent_is_gone(lambda: (print("alone", flush=True), os._exit(3)))
print("here", flush=True)
time.sleep(600)
"""
ASLEEP = """
import time
from fedcm.system.signals import StopSignals
with StopSignals():
    print("here", flush=True)
    time.sleep(600)
"""
PARENT = """
import os, subprocess, sys
from fedcm.system.processes import for_children
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=os.environ | for_children()).wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_told_and_handled_as_before_afterwards(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals(quiet=True) as stopping:
        assert not stopping()
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGHUP)  # by the shell, and by the terminal
        assert stopping()
    assert signal.getsignal(number) == before


def test_what_nohup_started_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals(quiet=True) as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert not stopping()
            signal.raise_signal(signal.SIGTERM)
            assert stopping()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_time_ends_it_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ASLEEP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGHUP)
    assert process.stderr.readline() == "\n"
    assert "once more" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_terminal_that_is_gone_cannot_hinder_the_stop() -> None:
    code = (
        "import os, signal\nfrom fedcm.system.signals import StopSignals\nos.close(2)\n"
        "with StopSignals() as stopping:\n signal.raise_signal(signal.SIGHUP)\n os._exit(0 if stopping() else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_process_learns_that_the_one_that_started_it_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, WATCHED], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "here\n"
    parent.kill()
    parent.wait()
    assert parent.stdout.readline() == "alone\n"
