"""Detect that the parent process is gone, so that a child process does not outlive it."""

import os
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

    Does nothing if this process was started by something else, such as a shell.
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
