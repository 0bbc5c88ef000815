"""Blocks of rest and of training, one after another in shuffled pairs."""

from __future__ import annotations

__all__ = ["Block", "Session", "Trains"]

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from joulemesh.calibration.conditions import clock_hz, temperature_c
from joulemesh.calibration.method import Bench, Method
from joulemesh.meters import Meter

_CALL_S = 0.25  # a call of the learner should take about so long
_MOST_ROUNDS = 2**20
_SINGLE_CALLS = 16


class Trains(Protocol):
    """A learner, as far as it is needed here: see `deploy.plans.Learner`."""

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""


@dataclass(frozen=True)
class Block:
    """What one block has shown.

    Attributes:
        kind: what the device did.
        pair: which pair of blocks it belongs to, from 0.
        begun_s: seconds from the beginning of the calibration.
        seconds: its length.
        steps: training steps in it.
        joules: by the meter; None without one.
        clock_hz: of the processor at its end; None where the system does not tell.
        temperature_c: the hottest part at its end; None likewise.
        state: of what the meter measures at its end: clock, temperature, throttling of a GPU.
    """

    kind: Literal["train", "rest"]
    pair: int
    begun_s: float
    seconds: float
    steps: int
    joules: float | None
    clock_hz: float | None
    temperature_c: float | None
    state: dict[str, float] = field(default_factory=dict)


class Session:
    """Measures one device.

    Args:
        learner: what is trained.
        meter: counts joules; None to measure seconds only.
        method: how much.
        bench: where.
        steps_per_round: training steps in one local round.
    """

    def __init__(
        self,
        learner: Trains,
        meter: Meter | None,
        method: Method,
        bench: Bench,
        steps_per_round: int = 1,
    ) -> None:
        self._learner, self._meter, self._bench = learner, meter, bench
        self._method, self._steps = method, steps_per_round
        self._iteration = 0
        self._begun_s = bench.clock()
        self.rounds = method.rounds or 1
        """Local rounds in one call of the learner."""
        self._reset = _reset_of(learner)

    def run(self, *, rest: bool) -> list[Block]:
        """Warm up, then measure all blocks.

        Args:
            rest: also measure rest; otherwise training only.

        Raises:
            MeterError: the meter fails.
        """
        self._warm_up()
        drawn = np.random.default_rng(self._method.seed)
        taken: list[Callable[[], Block]] = []
        count = self._method.samples * (2 if rest else 1)
        for pair in range(self._method.samples):
            kinds: list[Literal["train", "rest"]] = ["train", "rest"] if rest else ["train"]
            drawn.shuffle(kinds)
            for kind in kinds:
                words = f"block {len(taken) + 1} of {count}, {_WORDS[kind]}"
                self._bench.progress(words, len(taken) / count)
                self._bench.sleep(self._method.settle_s)
                taken.append(self._block(kind, pair))
        self._bench.progress("reading the meter", 1.0)
        return [block() for block in taken]

    def overheads_s(self, step_s: float) -> list[float]:
        """Seconds of some calls of the learner beyond their steps, each of one round."""
        self._reset()
        return [self._timed(1) - step_s * self._steps for _ in range(_SINGLE_CALLS)]

    def _warm_up(self) -> None:
        """Compile, fill caches, heat up; meanwhile find how many rounds a call should have."""
        self._bench.progress("warming up", 0.0)
        getattr(self._learner, "prepare", lambda: None)()
        self._timed(1)
        until = self._bench.clock() + self._method.warm_up_s
        while True:
            seconds = self._timed(self.rounds)
            known = self._method.rounds is not None or seconds >= _CALL_S / 2
            if not known and self.rounds < _MOST_ROUNDS:
                factor = _CALL_S / seconds if seconds > 0 else 16.0
                self.rounds = min(_MOST_ROUNDS, max(1, round(self.rounds * min(factor, 16.0))))
                known = factor < 2.0
            elif self._bench.clock() >= until:
                return

    def _timed(self, rounds: int) -> float:
        self._iteration += 1
        begun = self._bench.clock()
        self._learner.train(self._iteration, rounds)
        return self._bench.clock() - begun

    def _block(self, kind: Literal["train", "rest"], pair: int) -> Callable[[], Block]:
        """One block; its joules are asked for later, because an external meter may lag."""
        self._reset()
        clock, length = self._bench.clock, self._method.block_s
        steps, first, begun = 0, self._mark(), clock()
        if kind == "rest":
            self._bench.sleep(length)
        else:
            while clock() - begun < length:
                self._timed(self.rounds)
                steps += self.rounds * self._steps
        ended, last = clock(), self._mark()
        root = self._bench.root
        state: dict[str, float] = getattr(self._meter, "state", dict)()
        seen = clock_hz(root), temperature_c(root), state

        def block() -> Block:
            joules = None if self._meter is None else last() - first()
            at = begun - self._begun_s
            return Block(kind, pair, at, ended - begun, steps, joules, *seen)

        return block

    def _mark(self) -> Callable[[], float]:
        """What the meter counts now, to be asked for later."""
        if self._meter is None:
            return lambda: 0.0
        later: Callable[[], Callable[[], float]] | None = getattr(self._meter, "mark", None)
        if later is not None:
            return later()
        joules = self._meter.joules()
        return lambda: joules


_WORDS = {"train": "training", "rest": "rest"}


def _reset_of(learner: Any) -> Callable[[], None]:
    """What brings a learner back to its first parameters, so that all blocks train alike."""
    if not (hasattr(learner, "parameters") and hasattr(learner, "load")):
        return lambda: None
    vector = np.array(learner.parameters())
    memory = {name: np.array(one) for name, one in getattr(learner, "save", dict)().items()}

    def reset() -> None:
        learner.load(vector.copy())
        if memory:
            learner.restore(memory)

    return reset
