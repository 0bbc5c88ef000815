"""Room for the frames of deep calls: imports above all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_WORDS = 2**15  # of 8 bytes


def with_room(call: Callable[[], T]) -> T:
    """Call a function where hundreds of frames below it lie side by side.

    CPython keeps frames in chunks of 16 KiB, and returns a chunk to the system as soon as the first
    frame in it ends: a loop that calls across the end of a chunk maps and unmaps memory with every
    call. Nested imports reach that depth, which can cost them a tenth of their time. A frame that
    is larger than a chunk gets a chunk with room to spare, which the frames below it share. This
    function's frame asks for that much and uses none of it.
    """
    return call()


with_room.__code__ = with_room.__code__.replace(co_stacksize=_WORDS)
