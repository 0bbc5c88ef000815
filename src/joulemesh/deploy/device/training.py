"""The learner in a thread of its own: it trains when told to, and evaluates when it is free."""

from __future__ import annotations

__all__ = ["Training"]

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.own_code import place_in
from joulemesh.deploy.device.host import Works
from joulemesh.deploy.effects import Evaluate, Event, Train, Trained, TrainFailed
from joulemesh.deploy.plans import Learner

Tell = Callable[[str, dict[str, Any]], None]


class Training:
    """Carries out `Train` and `Evaluate`.

    Training comes first: of the evaluations that wait meanwhile only the newest is made. Nobody
    pays for evaluations, and none delays an exchange.

    Args:
        learner: made in the thread, so that what it imports (JAX) delays nobody's beats.
        every: evaluate after every so many iterations, and after the last.
        device: its number, if all devices evaluate on the same samples: those that hold the same
            parameters then take turns, except after the last iteration. None if not.
        clock: by which training is timed.
    """

    def __init__(
        self,
        learner: Learner,
        every: int = 1,
        device: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._learner, self._every, self._device = learner, every, device
        self._clock = clock
        self.last = 0
        """The last iteration of the plan, once it is known."""
        self._worker: Works | None = None
        self._waiting: Evaluate | None = None
        self._wanted = 0  # trainings that were asked for and are not over
        self._tell: Tell = lambda kind, figures: None

    def begin(self, worker: Works, tell: Tell, ready: Callable[[], None] = lambda: None) -> None:
        """Let the learner prepare itself in its thread, if it can.

        Loading JAX and compiling takes seconds, for which nobody should have to wait who is about
        to exchange with this device.

        Args:
            worker: the thread.
            tell: called with lines for the journal.
            ready: called when the learner is prepared.
        """
        self._worker, self._tell = worker, tell
        prepare = getattr(self._learner, "prepare", None)

        def over(_: object, error: BaseException | None) -> None:
            if error is not None:  # it will be met again, and told, when training is wanted
                tell("not-prepared", {"reason": reason_of(error)})
            else:
                tell("prepared", {"trained_by": getattr(self._learner, "trained_by", "")})
            ready()

        if prepare is not None:
            self._worker.do(prepare, over)

    def close(self) -> None:
        """Let the thread end."""
        if self._worker is not None:
            self._worker.close()

    @property
    def busy(self) -> bool:
        """Is the learner at work?"""
        return self._worker is not None and self._worker.busy

    async def evaluated(self, within_s: float) -> None:
        """Wait for evaluations that were asked for, unless training keeps them waiting."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self.busy and not self._wanted and loop.time() < until:
            await asyncio.sleep(0.01)

    def train(self, wanted: Train, then: Callable[[Event], None]) -> None:
        """Run local rounds; ``then`` is called with `Trained` or `TrainFailed`."""
        assert self._worker is not None
        self._wanted += 1

        def over(event: Event | None, error: BaseException | None) -> None:
            self._wanted -= 1
            if event is None:
                event = TrainFailed(wanted.iteration, reason_of(error), wanted.attempt)
                self._tell("not-trained", {"iteration": event.iteration, "reason": event.reason})
            then(event)
            self._evaluate_next()

        self._worker.do(lambda: _train(self._learner, wanted, self._clock), over)

    def evaluate(self, wanted: Evaluate) -> None:
        """Evaluate when there is time, if it is the turn of this iteration and of this device."""
        if wanted.iteration != self.last and not self._has_turn(wanted):
            return
        self._waiting = wanted
        self._evaluate_next()

    def _has_turn(self, wanted: Evaluate) -> bool:
        number, between = divmod(wanted.iteration, self._every)
        if between or self._device is None or not wanted.holders:
            return not between
        return wanted.holders[number % len(wanted.holders)] == self._device

    def _evaluate_next(self) -> None:
        wanted = self._waiting
        if self._worker is None or wanted is None or self._wanted:
            return
        self._waiting = None
        iteration = wanted.iteration

        def over(figures: Mapping[str, float] | None, error: BaseException | None) -> None:
            if figures is None:
                figures = {}
                self._tell("not-evaluated", {"iteration": iteration, "reason": reason_of(error)})
            else:
                self._tell("evaluated", {"iteration": iteration, **figures})
            self._evaluate_next()

        self._worker.do(lambda: _evaluate(self._learner, wanted), over)


def _train(learner: Learner, wanted: Train, clock: Callable[[], float]) -> Trained:
    began = clock()
    learner.load(wanted.start.vector)
    learner.restore(wanted.start.memory)
    if wanted.rounds:
        learner.train(wanted.iteration, wanted.rounds)
    vector = own_vector(learner.parameters(), like=wanted.start.vector)
    if not np.isfinite(vector).all():
        raise ScenarioError(
            f"parameters are not finite after iteration {wanted.iteration}; lower the learning rate"
        )
    memory = {name: np.array(one) for name, one in learner.save().items()}
    repeatable = bool(getattr(learner, "repeatable", False))
    seconds = clock() - began
    return Trained(wanted.iteration, vector, memory, repeatable, wanted.attempt, seconds)


def own_vector(parameters: Any, like: Vector) -> NDArray[Any]:
    """A copy of what a learner gives as its parameters, if they are what they should be.

    Raises:
        ScenarioError: they are not one vector of the length and type of ``like``.

    >>> own_vector([1.0, 2.0], np.zeros(3))
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: the learner's parameters() gives 2 numbers of type float64, ...
    """
    vector = np.array(parameters)
    if vector.shape != like.shape or vector.dtype != like.dtype:
        shape = f"{vector.size} numbers" if vector.ndim == 1 else f"an array {vector.shape}"
        raise ScenarioError(
            f"the learner's parameters() gives {shape} of type {vector.dtype}, and {like.size} of "
            f"type {like.dtype} are wanted: give the same vector after every train()"
        )
    return vector


def _evaluate(learner: Learner, wanted: Evaluate) -> Mapping[str, float]:
    learner.load(wanted.vector)
    return {str(name): float(one) for name, one in dict(learner.evaluate()).items()}


def reason_of(error: BaseException | None) -> str:
    """One line about what a learner's code raised, with its place if it is the user's own."""
    if error is None:
        return "unknown"
    place = place_in(error)
    words = str(error) if isinstance(error, JoulemeshError) else f"{type(error).__name__}: {error}"
    return " ".join((words if place is None else f"{place}: {words}").split())[:400]
