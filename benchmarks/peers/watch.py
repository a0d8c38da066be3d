"""A command run to its end and watched meanwhile: the peak of the memory of all its processes together.

Memory is PSS: a page that n processes share counts 1/n in each. Processes that leave their parent count too. Looking
takes time from the watched, a tenth where much is mapped, so a command that is timed is not looked at.
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

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER: orphans among our descendants become our children
_TICK = 0.01


@dataclass(frozen=True)
class Watched:
    began: float  # time.time()
    output: str
    peak: int  # bytes
    noticed: float | None  # when `notice` first held


def watched(
    words: list[str],
    env: dict[str, str],
    notice: Callable[[], bool] = lambda: False,
    *,
    memory: bool,
    limit: float = 1800,
) -> Watched:
    ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)
    peak, due, noticed = 0, 0.0, None
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.time()
        process = subprocess.Popen(words, env=env, stdout=output, stderr=errors, text=True)
        while process.poll() is None:
            if noticed is None and notice():
                noticed = time.time()
            if memory and (look := time.time()) >= due:
                peak = max(peak, sum(map(shared_out_memory, descendants())))
                due = time.time() + max(5 * _TICK, 50 * (time.time() - look))
            if time.time() - began > limit:
                process.kill()
            time.sleep(_TICK)
        end_the_rest()
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{errors.read()[-3000:]}")
        return Watched(began, output.read(), peak, noticed)


def descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has just ended
        children.setdefault(parent, []).append(int(path.parent.name))
    found = children.get(os.getpid(), [])
    for process in found:  # grows meanwhile
        found.extend(children.get(process, []))
    return found


def shared_out_memory(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def end_the_rest(patience: float = 10) -> None:
    """What the command left behind gets a while to end by itself."""
    until = time.time() + patience
    while left := descendants():
        if time.time() > until:
            for process in left:
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_TICK)
