"""The process between an operator's command and the engine: whatever the engine starts ends with it.

    fedcm federation site ─► keeper ─► the engine ─► its jobs ─► their training

The engine's jobs leave its process group and outlive it. So the keeper becomes the parent of every orphan below it, and
ends them all: in peace when the engine has ended, at once when the command is gone, however that went. The command
holds the other end of the keeper's stdin, which the system closes with it.
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

ENDED_BY = 128  # a process that was ended by signal n is told as this + n
_PATIENCE = 2.0  # seconds from asking what the engine left behind to ending it
_AT_MOST = 10.0  # seconds: what waits for a dead disk cannot be ended
_CHILD_SUBREAPER, _PARENT_DEATH_SIGNAL = 36, 1  # of prctl, which Linux alone has
_LIBC = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """From here on, what is started below this process stays below it."""
    if sys.platform == "linux":
        _LIBC.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(patience: float = 0.0) -> None:
    """Asks all below this process to end, and ends those who have not in so many seconds."""
    start, asked = time.monotonic(), set[int]()
    while (passed := time.monotonic() - start) < patience + _AT_MOST:
        _reap()
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            with suppress(psutil.Error):
                if passed >= patience:
                    process.kill()
                elif process.pid not in asked:
                    asked.add(process.pid)
                    process.terminate()
        time.sleep(0.02)


def keep(command: list[str], grace: int) -> int:
    """The command's exit code. On SIGTERM it is asked to end and has so many seconds for that."""
    adopt_orphans()
    engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent)

    def ask(*_: object) -> None:
        signal.alarm(grace)
        with suppress(ProcessLookupError):
            os.kill(engine.pid, signal.SIGTERM)

    signal.signal(signal.SIGALRM, lambda *_: end_descendants())
    signal.signal(signal.SIGTERM, ask)
    threading.Thread(target=_end_without_command, daemon=True).start()
    code = _waited_for(engine.pid)
    signal.alarm(0)
    end_descendants(_PATIENCE)
    return code


def _end_with_parent() -> None:
    """In the engine, should its keeper be killed."""
    if sys.platform == "linux":
        _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _end_without_command() -> None:
    while os.read(0, 1):
        pass
    end_descendants()
    os._exit(ENDED_BY + signal.SIGKILL)


def _waited_for(pid: int) -> int:
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:  # the thread that ends all was faster
            return ENDED_BY + signal.SIGKILL
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else ENDED_BY - code


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(keep(sys.argv[2:], int(sys.argv[1])))
