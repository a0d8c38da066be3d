"""Settings of glibc's allocator.

By default glibc returns large blocks to the system as soon as they are freed. A training step of a wide network frees
and requests the same blocks again and would spend a tenth of its time on fresh, zeroed, uncached pages.
"""

import ctypes

_TRIM, _TOP_PAD, _MMAP = -1, -2, -3  # parameters of mallopt(3), in bytes


def keep_freed_memory() -> None:
    """Make this process keep freed memory for reuse.

    Call it only in processes that fedcm owns. It does nothing if the C library is not glibc. Older versions of glibc
    accept at most 32 MiB for the first setting; without that setting the other two would make training slower.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    if mallopt(_MMAP, 2**28) or mallopt(_MMAP, 2**25):  # only larger blocks are mapped, and unmapped when freed
        mallopt(_TRIM, 2**31 - 1)  # free bytes to keep before any are returned to the system
        mallopt(_TOP_PAD, 2**26)  # bytes to request from the system beyond what is needed
