"""Is a lock held, by whatever process?"""

import fcntl
from pathlib import Path


def is_locked(lock: Path) -> bool:
    """Asks without leaving a trace."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
