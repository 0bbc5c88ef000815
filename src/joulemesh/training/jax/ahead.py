"""Compile the programs of a run side by side, while its first parameters are drawn.

XLA compiles outside Python's lock, and a run needs three to five programs. Which ones, for arrays
of which shapes, is found by a rehearsal: the calls of the first and of the last chunk are made with
descriptions of arrays, to stand-ins that only trace.
"""

from __future__ import annotations

__all__ = ["Compiling", "compile_ahead"]

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from joulemesh.base import machine
from joulemesh.training import hosts
from joulemesh.training.jax.calls import queue_chunk
from joulemesh.training.jax.platform import describe
from joulemesh.training.jax.programs import Programs
from joulemesh.training.jax.state import described
from joulemesh.training.jax.types import State

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine

_TOGETHER = 4  # programs compiled side by side, at most


class Compiling:
    """Programs that are being compiled."""

    def __init__(self) -> None:
        self._under_way: list[Future[Any]] = []

    def add(self, one: Future[Any]) -> None:
        """Take note of one."""
        self._under_way.append(one)

    def wait(self) -> None:
        """Return once all are compiled; what the compiler raises is raised here."""
        while self._under_way:
            self._under_way.pop().result()


def compile_ahead(engine: Engine, start: int) -> Compiling:
    """Begin to compile all that a run from an iteration on will call.

    On a single core there is nothing to gain, and of several processes each compiles as it comes
    to a call.
    """
    found = Compiling()
    workers = min(_TOGETHER, machine.cpus())
    if workers < 2 or not hosts.alone():
        return found
    with engine.scope():
        lowered = _rehearse(engine, start)

    def compiled(one: jax.stages.Lowered) -> None:
        with engine.scope():
            one.compile()

    pool = ThreadPoolExecutor(workers, thread_name_prefix="compile")
    for one in lowered:
        found.add(pool.submit(compiled, one))
    pool.shutdown(wait=False)
    return found


def _rehearse(engine: Engine, start: int) -> list[jax.stages.Lowered]:
    """Every program that the chunk from an iteration on and the last one call, traced."""
    lowered: dict[object, jax.stages.Lowered] = {}
    stand_ins = Programs(*(_stand_in(one, lowered) for one in engine.programs))
    state, chunk = described(engine), engine.key.chunk
    last = (engine.schedule.iterations - 1 - start) // chunk * chunk + start
    for first in sorted({start, last}):
        queue_chunk(engine, stand_ins, state, first, put=describe)
    return list(lowered.values())


def _stand_in(
    program: Callable[..., Any], lowered: dict[object, jax.stages.Lowered]
) -> Callable[..., Any]:
    """A function that traces a program, and returns descriptions of what it would."""
    jitted: Any = getattr(program, "jitted", program)

    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        shapes = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
        signature = (jitted, tree, shapes)
        if signature not in lowered:
            lowered[signature] = jitted.lower(*arguments)
        out = lowered[signature].out_info
        # A state comes back as it went in: in the same memory, of the same shapes.
        return (arguments[0], *out[1:]) if isinstance(arguments[0], State) else out

    return call
