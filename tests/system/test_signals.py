"""The first signal requests a stop, the second one stops at once; a repeated SIGHUP does not count."""

import signal
import subprocess
import sys

import pytest

from fedcm.system.signals import StopSignals

CHILD = """
import os, sys, time
from fedcm.system.processes import call_on_parent_exit
call_on_parent_exit(lambda: (print("alone", flush=True), os._exit(3)))
print("here", flush=True)
time.sleep(600)
"""
SLEEPING = """
import time
from fedcm.system.signals import StopSignals
with StopSignals():
    print("here", flush=True)
    time.sleep(600)
"""
PARENT = """
import os, subprocess, sys
from fedcm.system.processes import make_child_environment
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=os.environ | make_child_environment()).wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_sets_the_flag_and_the_old_handler_is_restored(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals(quiet=True) as stop_requested:
        assert not stop_requested()
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGHUP)  # a closing terminal sends it twice
        assert stop_requested()
    assert signal.getsignal(number) == before


def test_a_command_started_with_nohup_ignores_sighup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals(quiet=True) as stop_requested:
            signal.raise_signal(signal.SIGHUP)
            assert not stop_requested()
            signal.raise_signal(signal.SIGTERM)
            assert stop_requested()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_stops_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGHUP)
    assert process.stderr.readline() == "\n"
    assert "repeat to stop at once" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_closed_terminal_does_not_prevent_stopping() -> None:
    code = (
        "import os, signal\nfrom fedcm.system.signals import StopSignals\nos.close(2)\n"
        "with StopSignals() as stop_requested:\n"
        " signal.raise_signal(signal.SIGHUP)\n os._exit(0 if stop_requested() else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_process_notices_that_its_parent_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "here\n"
    parent.kill()
    parent.wait()
    assert parent.stdout.readline() == "alone\n"
