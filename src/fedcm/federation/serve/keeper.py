"""The keeper: a process between an operator's command and the engine that ends everything the engine started.

    fedcm federation site ─► keeper ─► the engine ─► its jobs ─► their training

The engine's jobs leave its process group and outlive it. So the keeper adopts every orphan below it. It asks them to
end when the engine has ended, and kills them when the command is gone. The command holds the other end of the keeper's
stdin, which the system closes when the command ends, for whatever reason.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil

SIGNAL_EXIT = 128  # exit code of a process that was ended by signal n: this + n
_PATIENCE = 2.0  # seconds between asking the engine's leftovers to end and killing them
_KILL_TIMEOUT = 10.0  # seconds; a process that waits for a dead disk cannot be killed
_CHILD_SUBREAPER, _PARENT_DEATH_SIGNAL = 36, 1  # options of prctl, which only Linux has
_LIBC = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """Make this process the parent of all orphans below it."""
    if sys.platform == "linux":
        _LIBC.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(patience: float = 0.0) -> None:
    """Ask all processes below this one to end, and kill those that have not ended after `patience` seconds."""
    start, terminated = time.monotonic(), set[int]()
    while (elapsed := time.monotonic() - start) < patience + _KILL_TIMEOUT:
        _reap()
        remaining = psutil.Process().children(recursive=True)
        if not remaining:
            return
        for process in remaining:
            with suppress(psutil.Error):
                if elapsed >= patience:
                    process.kill()
                elif process.pid not in terminated:
                    terminated.add(process.pid)
                    process.terminate()
        time.sleep(0.02)


def list_command_lines() -> list[str]:
    """Return the command lines of all processes below this one."""
    lines = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


def run_engine(command: list[str], grace: int) -> int:
    """Run the engine until it ends, end what it left behind, and return its exit code.

    On SIGTERM the engine is asked to end; it is killed after `grace` seconds.
    """
    adopt_orphans()
    engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent)

    def ask_to_end(*_: object) -> None:
        signal.alarm(grace)
        with suppress(ProcessLookupError):
            os.kill(engine.pid, signal.SIGTERM)

    signal.signal(signal.SIGALRM, lambda *_: end_descendants())
    signal.signal(signal.SIGTERM, ask_to_end)
    threading.Thread(target=_end_without_command, daemon=True).start()
    code = _wait_for(engine.pid)
    signal.alarm(0)
    end_descendants(_PATIENCE)
    return code


def _end_with_parent() -> None:
    """Called in the engine's process: if the keeper is killed, so is the engine."""
    if sys.platform == "linux":
        _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _end_without_command() -> None:
    while os.read(0, 1):
        pass
    end_descendants()
    os._exit(SIGNAL_EXIT + signal.SIGKILL)


def _wait_for(pid: int) -> int:
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:  # the other thread has reaped everything first
            return SIGNAL_EXIT + signal.SIGKILL
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNAL_EXIT - code


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(run_engine(sys.argv[2:], int(sys.argv[1])))
