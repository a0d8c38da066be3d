"""Start and end processes: whether a fork is safe, whether the parent is gone, how a process ended."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PARENT = "FEDCM_PARENT"
_POLL_SECONDS = 0.5


def make_child_environment() -> dict[str, str]:
    """Return environment variables for a child process that calls `call_on_parent_exit`."""
    return {_PARENT: str(os.getpid())}


def call_on_parent_exit(action: Callable[[], object]) -> None:
    """Call `action` in a thread when the fedcm process that started this one is gone, however it ended.

    It does nothing if another program started this process, such as a shell.
    """
    parent = os.environ.pop(_PARENT, None)  # children of this process have another parent
    if parent is not None:
        watch_parent(int(parent), action)


def watch_parent(parent: int, action: Callable[[], object]) -> None:
    """Call `action` in a thread as soon as `parent` is no longer the parent of this process.

    Args:
        parent: The parent's process id.
        action: Called once, without arguments.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        action()

    threading.Thread(target=watch, daemon=True).start()


def is_fork_safe() -> bool:
    """Return whether a process that has imported torch can be forked; system libraries of macOS do not allow it."""
    return sys.platform == "linux"


def describe_exit(code: int) -> str:
    """Describe how a process ended.

    Args:
        code: The exit code; a negative number -n means signal n, as in `subprocess`.

    >>> describe_exit(3), describe_exit(-9)
    ('exited with code 3', 'was killed by SIGKILL')
    """
    if code >= 0:
        return f"exited with code {code}"
    names = {int(number): number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
