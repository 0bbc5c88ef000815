"""Frames below `with_room` lie side by side, however deep the stack is."""

from __future__ import annotations

import sys

import pytest

from joulemesh.base.frames import with_room

resource = pytest.importorskip("resource", reason="page faults are counted on Unix alone")

CALLS, DEPTHS = 200, 400


def nothing() -> None:
    """A frame larger than the one that calls it: at some depth it does not fit into the chunk."""


nothing.__code__ = nothing.__code__.replace(co_stacksize=64)


def faults() -> int:
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


def faults_at(depth: int) -> int:
    """Page faults of many calls, one after another, so many frames further down."""
    if depth:
        return faults_at(depth - 1)
    before = faults()
    for _ in range(CALLS):
        nothing()
    return faults() - before


def worst() -> int:
    return max(faults_at(depth) for depth in range(DEPTHS))


@pytest.mark.skipif(
    sys.implementation.name != "cpython" or sys.platform != "linux",
    reason="what is seen here is CPython's on Linux",
)
def test_no_loop_maps_memory_with_every_call() -> None:
    assert worst() >= CALLS  # of all those depths, one is at the end of a chunk
    assert with_room(worst) < CALLS / 2


def test_what_is_called_answers_and_raises_as_ever() -> None:
    assert with_room(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 // 0)
