"""What a step frees, the next one asks for again: it stays with the process instead of going back to the system.

glibc gives large blocks back as soon as they are free, and a step of a wide network would then spend a tenth of its
time on getting them anew, zeroed and out of the caches.
"""

import ctypes

_SETTINGS = {  # of mallopt(3), in bytes
    -3: 2**28,  # M_MMAP_THRESHOLD: only larger blocks come straight from the system
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: more than this lies free before any is given back
    -2: 2**26,  # M_TOP_PAD: taken beyond what is asked for
}


def keep_freed_memory() -> None:
    """For a process of this program's own. Where the C library is another, nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for what, size in _SETTINGS.items():
        mallopt(what, size)
