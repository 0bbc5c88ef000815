"""A machine whose clock, draw and speed a test decides."""

from __future__ import annotations

__all__ = ["Machine"]

from collections.abc import Callable
from pathlib import Path

import numpy as np

from joulemesh.calibration import Bench


class Machine:
    """Clock, learner and meter of one machine, in one object.

    Args:
        step_s: seconds of a training step.
        rest_w: watts at rest, as a function of time.
        train_w: watts while it trains, likewise.
        call_s: seconds of a call of the learner beyond its steps.
    """

    name, source = "toy", "recorded from a toy"

    def __init__(
        self,
        step_s: float = 0.002,
        rest_w: Callable[[float], float] = lambda now: 3.0,
        train_w: Callable[[float], float] = lambda now: 10.0,
        call_s: float = 0.0,
    ) -> None:
        self.now, self.counted_j, self.closed, self.trained = 0.0, 0.0, 0, 0
        self.step_s, self.rest_w, self.train_w, self.call_s = step_s, rest_w, train_w, call_s
        self.vector, self.loaded = np.zeros(3), 0
        self.kinds: list[str] = []

    def bench(self, root: Path = Path("/nowhere")) -> Bench:
        return Bench(lambda: self.now, self.sleep, root)

    def sleep(self, seconds: float) -> None:
        if seconds > 1.0:
            self.kinds.append("rest")
        self._pass(seconds, self.rest_w)

    def _pass(self, seconds: float, watts: Callable[[float], float]) -> None:
        self.counted_j += seconds * watts(self.now + seconds / 2)
        self.now += seconds

    # The learner.

    def parameters(self) -> np.ndarray:
        return self.vector

    def load(self, parameters: np.ndarray) -> None:
        self.loaded += 1
        self.vector = parameters

    def evaluate(self) -> dict[str, float]:
        return {}

    def train(self, iteration: int, rounds: int) -> None:
        assert iteration == self.trained + 1
        self.trained += 1
        self.vector = self.vector + 1.0
        if not self.kinds or self.kinds[-1] != "train":
            self.kinds.append("train")
        self._pass(rounds * self.step_s + self.call_s, self.train_w)

    # The meter.

    def joules(self) -> float:
        return self.counted_j

    def close(self) -> None:
        self.closed += 1
