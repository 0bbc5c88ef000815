"""The one loop that drives a learner: run, compare, reproduce and the gap study all call it.

What is done with a chunk once it is trained (checkpoints, metrics, progress, timing) is up to
sinks. Divergence and interruption are handled here."""

from __future__ import annotations

__all__ = [
    "DivergedError",
    "Interrupt",
    "Sink",
    "TrainedChunk",
    "chunks",
    "interrupts",
    "train",
    "train_seeds",
]

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from joulemesh.training import hosts
from joulemesh.training.learner import DivergedError, Learner, State
from joulemesh.training.trace import Trace

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Interrupt:
    """While entered, the first SIGINT (or SIGTERM) only sets ``asked``."""

    def __init__(self, settle_s: float = 0.0) -> None:
        self.asked = False
        self.settle_s = settle_s
        self._settled = 0.0
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        # Only the main thread may set signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked, self._settled = True, time.monotonic() + self.settle_s
        elif time.monotonic() >= self._settled:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


S = TypeVar("S", bound=State)

# With several processes a stop signal can arrive more than once (terminal, parent, scheduler);
# repeats within this time are ignored.
_SETTLE_S = 2.0
_SPARE = 1_000_000  # the first of the seeds that stand in for diverged ones


@dataclass(frozen=True, eq=False)
class TrainedChunk(Generic[S]):
    """One chunk that has been trained."""

    learner: Learner[S]  # what trains
    state: S  # after the chunk; the next one consumes it
    trace: Trace  # the evaluations made in the chunk
    start: int  # iterations completed before the chunk
    completed: int  # iterations completed
    wall_s: float  # seconds that the chunk took
    stopping: bool = False  # whether training has been asked to stop after this chunk

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return self.learner.schedule.iterations

    @property
    def finished(self) -> bool:
        """Was this the last chunk of the schedule?"""
        return self.completed >= self.iterations

    @property
    def last(self) -> bool:
        """Is no chunk to follow, because training is finished or asked to stop?"""
        return self.finished or self.stopping


Sink: TypeAlias = Callable[[TrainedChunk[Any]], None]
"""Takes every chunk as soon as it is trained."""


def chunks(learner: Learner[S], state: S | None = None) -> Iterator[tuple[S, Trace]]:
    """Advance a learner to the end of its schedule."""
    state = learner.begin() if state is None else state
    while int(state.iteration) < learner.schedule.iterations:
        state, trace = learner.advance(state)
        yield state, trace


def train(
    learner: Learner[S],
    sinks: Sequence[Sink] = (),
    *,
    state: S | None = None,
    interrupt: Interrupt | None = None,
) -> tuple[S, list[Trace]]:
    """Train to the end of the schedule.

    Args:
        learner: what trains.
        sinks: called after every chunk, in this order.
        state: where to go on from; the beginning unless given.
        interrupt: entered by the caller (`interrupts`), who keeps what the last chunk gave before
            it stops; entered here unless given. Ctrl-C or SIGTERM then stops training after the
            chunk that is under way, once the sinks have had it. Of several processes each may be
            asked.

    Returns:
        The final state, and the evaluations of every chunk.

    Raises:
        DivergedError: parameters are no longer finite.
        KeyboardInterrupt: training was asked to stop, before its end.

    >>> import numpy as np
    >>> from joulemesh.data import load, partition
    >>> from joulemesh.models import build
    >>> from joulemesh.training import Engine, Options, Schedule
    >>> digits = load("digits")
    >>> held = partition(digits.y_train, 4, kind="iid")
    >>> engine = Engine(build("logistic", digits.shape, 10), digits, [held],
    ...                 Schedule(np.ones((6, 4), int)), Options(chunk_iterations=3))
    >>> state, traces = train(engine, [lambda chunk: print(chunk.completed, chunk.finished)])
    3 False
    6 True
    """
    if interrupt is None:
        with interrupts() as own:
            found = train(learner, sinks, state=state, interrupt=own)
        if own.asked:  # in the last chunk
            raise KeyboardInterrupt
        return found
    alone, traces = hosts.alone(), []
    state = learner.begin() if state is None else state
    start, clock = int(state.iteration), time.perf_counter()
    # Each state consumes the one before.
    for state, trace in chunks(learner, state):  # noqa: B020
        wall_s, completed = time.perf_counter() - clock, int(state.iteration)
        stop = hosts.any_of(interrupt.asked)[0]
        traces.append(trace)
        chunk = TrainedChunk(learner, state, trace, start, completed, wall_s, stop)
        for sink in sinks:
            sink(chunk)
        late = alone and interrupt.asked
        if (stop or late) and not chunk.finished:
            raise KeyboardInterrupt
        start, clock = completed, time.perf_counter()
    return state, traces


def interrupts() -> Interrupt:
    """While entered, the first Ctrl-C only asks training to stop; a second one stops it at once."""
    return Interrupt(0.0 if hosts.alone() else _SETTLE_S)


R = TypeVar("R")


def train_seeds(
    once: Callable[[tuple[int, ...]], Sequence[R]], seeds: Sequence[int], *, stand_ins: bool = False
) -> Iterator[tuple[int, R | DivergedError]]:
    """Train all seeds together; if one diverges, the others once more without it."""
    left, spare = tuple(seeds), _SPARE
    lineup = left
    while left:
        try:
            found = once(lineup)
        except DivergedError as error:
            if error.seed in left:
                yield error.seed, error
            left = tuple(seed for seed in left if seed != error.seed)
            if stand_ins and spare < _SPARE + 2 * len(seeds):
                lineup = tuple(spare if seed == error.seed else seed for seed in lineup)
                spare += 1
            else:  # as do stand-ins that diverge as well
                lineup = left
        else:
            yield from (
                (seed, one) for seed, one in zip(lineup, found, strict=True) if seed in left
            )
            return
