"""Run a command to its end and measure the peak memory of all its processes together.

Memory is PSS: a page shared by n processes counts 1/n in each. Processes that leave their parent count too. Sampling
slows the command down, by a tenth if much is mapped, so memory and time are measured in separate runs.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER: orphaned descendants become children of this process
_TICK = 0.01


@dataclass(frozen=True)
class MonitoredRun:
    """The output and the measurements of a command."""

    began: float  # time.time()
    output: str
    peak: int  # bytes
    noticed: float | None  # when `notice` first returned True


def run_monitored(
    words: list[str],
    env: dict[str, str],
    notice: Callable[[], bool] = lambda: False,
    *,
    memory: bool,
    limit: float = 1800,
) -> MonitoredRun:
    """Run a command; sample its memory if `memory` is set, and kill it after `limit` seconds."""
    ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)
    peak, due, noticed = 0, 0.0, None
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.time()
        process = subprocess.Popen(words, env=env, stdout=output, stderr=errors, text=True)
        while process.poll() is None:
            if noticed is None and notice():
                noticed = time.time()
            if memory and (sampled := time.time()) >= due:
                peak = max(peak, sum(map(measure_pss, list_descendants())))
                due = time.time() + max(5 * _TICK, 50 * (time.time() - sampled))
            if time.time() - began > limit:
                process.kill()
            time.sleep(_TICK)
        end_descendants()
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{errors.read()[-3000:]}")
        return MonitoredRun(began, output.read(), peak, noticed)


def list_descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # the process has just ended
        children.setdefault(parent, []).append(int(path.parent.name))
    processes = children.get(os.getpid(), [])
    for process in processes:  # grows while iterating
        processes.extend(children.get(process, []))
    return processes


def measure_pss(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def end_descendants(patience: float = 10) -> None:
    """Wait for processes that the command left behind, and kill them after `patience` seconds."""
    until = time.time() + patience
    while left := list_descendants():
        if time.time() > until:
            for process in left:
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_TICK)
