"""What a process does when the one that started it is gone, however that one ended: nobody is left to end it."""

import os
import threading
import time
from collections.abc import Callable

_PARENT = "FEDCM_PARENT"
_LOOK = 0.5  # seconds between looks


def child_environment() -> dict[str, str]:
    """For the environment of a process that is to end with this one."""
    return {_PARENT: str(os.getpid())}


def on_parent_exit(act: Callable[[], object]) -> None:
    """Where a process of ours started this one; what anybody else started goes on alone."""
    parent = os.environ.pop(_PARENT, None)  # what this one starts has another parent
    if parent is not None:
        on_exit_of(int(parent), act)


def on_exit_of(parent: int, act: Callable[[], object]) -> None:
    """Once this process is no longer the child of that one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        act()

    threading.Thread(target=watch, daemon=True).start()
