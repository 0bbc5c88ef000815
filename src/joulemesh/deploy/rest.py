"""A node that waits gives back the memory that it does not need meanwhile."""

from __future__ import annotations

__all__ = ["give_back_memory"]

import ctypes
import gc
import sys
from contextlib import suppress

_LEAST_BYTES = 2**20
_MADV_PAGEOUT = 21  # Linux 5.4; Python 3.11's mmap does not name it


def give_back_memory() -> None:
    """Return freed memory to the system, and let go of the pages of large libraries' code.

    Code of JAX and gRPC that was needed once, for compiling above all, would stay resident; what is
    needed again is read from the system's cache. Where the system cannot be told so, nothing
    happens.

    >>> give_back_memory()
    """
    gc.collect()
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.malloc_trim(0)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for start, stop in _library_code():
            libc.madvise(start, stop - start, _MADV_PAGEOUT)


def _library_code() -> list[tuple[int, int]]:
    """Where the system has mapped large files that nobody writes to, as ranges of addresses."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, rights, _, _, inode, *path = line.split(maxsplit=5)
            start, stop = (int(one, 16) for one in addresses.split("-"))
            if "w" not in rights and inode != "0" and path and stop - start >= _LEAST_BYTES:
                found.append((start, stop))
    return found
