"""What a step frees, the next one asks for again: it stays with the process instead of going back to the system.

glibc gives large blocks back as soon as they are free, and a step of a wide network would then spend a tenth of its
time on getting them anew, zeroed and out of the caches.
"""

import ctypes

_TRIM, _TOP_PAD, _MMAP = -1, -2, -3  # parameters of mallopt(3), in bytes


def keep_freed_memory() -> None:
    """For a process of this program's own. Where the C library is another, nothing happens; an older glibc takes 32 MiB
    at most for the first setting, and without it the others would make everything worse."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    if mallopt(_MMAP, 2**28) or mallopt(_MMAP, 2**25):  # larger blocks alone come straight from the system
        mallopt(_TRIM, 2**31 - 1)  # more than this lies free before any is given back
        mallopt(_TOP_PAD, 2**26)  # taken beyond what is asked for
