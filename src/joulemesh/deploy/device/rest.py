"""A node that waits gives back the memory that it does not need meanwhile."""

from __future__ import annotations

__all__ = ["give_back_memory"]

import ctypes
import gc
import mmap
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from joulemesh.base.machine import trim_memory

_LEAST_BYTES = 2**16


def give_back_memory() -> None:
    """Return freed memory to the system, and let go of the pages of libraries' code.

    Code of JAX that was needed once, for compiling above all, would stay resident; what is
    needed again is found in the system's cache. Where the system cannot be told so, nothing
    happens.

    >>> give_back_memory()
    """
    gc.collect()
    trim_memory()
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError, ValueError):
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        with open("/proc/self/smaps") as maps:
            for start, stop in list(_clean(maps)):
                libc.madvise(start, stop - start, mmap.MADV_DONTNEED)


def _clean(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where files are mapped that nobody can write to and nobody has written to.

    Parts that the loader has written before it made them read-only hold anonymous pages, which
    are nowhere else: they must stay.

    >>> list(_clean(["7f00-7f0100000 r-xp 0 08:01 5 /lib/a.so", "Anonymous: 0 kB"]))
    [(32512, 34092351488)]
    >>> list(_clean(["7f00-7f0100000 r--p 0 08:01 5 /lib/a.so", "Anonymous: 4 kB"]))
    []
    """
    place = None
    for line in lines:
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):
            rights, inode = rest[0], rest[3]
            start, stop = (int(one, 16) for one in first.split("-"))
            fixed = "w" not in rights and "s" not in rights and inode != "0"
            place = (start, stop) if fixed and stop - start >= _LEAST_BYTES else None
        elif first == "Anonymous:" and rest[0] == "0" and place is not None:
            yield place
