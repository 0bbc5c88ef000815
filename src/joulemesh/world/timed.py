"""Figures of devices that change over time, replayed from rows of (time, device, figure).

A row holds from its time on until the device's next. Times are iterations (``t``, from 1, as in a
trace of gains) or seconds since training began (``time_s``). What is asked for is what holds at a
time; nothing here looks ahead of it.
"""

from __future__ import annotations

__all__ = ["Timed"]

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Timed:
    """Rows of (time, device, figures), in the order of time.

    Attributes:
        path: of the file, for messages.
        seconds: are times seconds since the start, and not iterations?
        time: float64 [R], ascending.
        device: int64 [R].
        value: float64 [R, K]: K figures of the device from that time on.
        before: float64 [N, K]: what holds before a device's first row.
        end: what follows the last time: ``"hold"``, ``"repeat"`` or ``"refuse"``.
    """

    path: str
    seconds: bool
    time: FloatArray
    device: IntArray
    value: FloatArray
    before: FloatArray
    end: str = "hold"
    _held: dict[tuple[int, bool], FloatArray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.end == "repeat" and (len(self.changes) < 2 or self.changes[0] < self.start):
            raise ScenarioError(
                f'{self.path}: devices.trace_end = "repeat" needs rows of at least two times, '
                f"none of them before {self.unit}{self.start:g}; add rows, or hold the last"
            )

    @property
    def start(self) -> float:
        """The time at which the first iteration begins."""
        return 0.0 if self.seconds else 1.0

    @property
    def unit(self) -> str:
        """What times are called in a sentence, before their number."""
        return "time_s = " if self.seconds else "t = "

    @cached_property
    def changes(self) -> FloatArray:
        """The different times of rows, ascending."""
        return np.unique(self.time)

    @cached_property
    def period(self) -> float:
        """How long the rows last from the start on: the last as long as the one before it.

        A single one lasts as long as there are iterations.
        """
        if len(self.changes) < 2:
            return np.inf
        last, previous = self.changes[-1], self.changes[-2]
        return float(2 * last - previous - self.start)

    def when(self, iteration: int, elapsed_s: float) -> float:
        """The time at which an iteration (from 0) begins, after so many seconds."""
        return elapsed_s if self.seconds else iteration + 1.0

    def snapshot(self, when: float) -> tuple[int, bool]:
        """How many rows hold or have held by a time, and whether the rows have repeated."""
        over = when - self.start >= self.period
        if self.end == "refuse" and over:
            raise ScenarioError(
                f"{self.path} ends with {self.unit}{self.changes[-1]:g}, and "
                f"{self.unit}{when:g} is wanted; lower plan.iterations, add rows, or set "
                'devices.trace_end to "hold" or "repeat"'
            )
        again = self.end == "repeat" and over
        if again:
            when = (when - self.start) % self.period + self.start
        return int(np.searchsorted(self.time, when, side="right")), again

    def at(self, when: float) -> FloatArray:
        """float64 [N, K]: what holds at a time."""
        return self.held(self.snapshot(when))

    def held(self, snapshot: tuple[int, bool]) -> FloatArray:
        """float64 [N, K]: what holds in a snapshot."""
        if snapshot not in self._held:
            if len(self._held) > 1:
                self._held.clear()  # times come in order: few are asked for again
            self._held[snapshot] = self._latest(*snapshot)
        return self._held[snapshot]

    def _latest(self, rows: int, again: bool) -> FloatArray:
        values = self.before.copy()
        for stop in ([len(self.device)] if again else []) + [rows]:
            latest = np.full(len(values), -1)
            np.maximum.at(latest, self.device[:stop], np.arange(stop))
            known = latest >= 0
            values[known] = self.value[latest[known]]
        return values

    def integral(self, start: float, stop: float) -> FloatArray:
        """float64 [N, K]: the figures summed over the seconds from start to stop."""
        total = np.zeros_like(self.before)
        while start < stop:
            until = min(stop, self.next_change(start))
            total += self.at(start) * (until - start)
            start = until
        return total

    def next_change(self, when: float) -> float:
        """The first time after one at which something may change."""
        if self.end == "refuse" and when < self.start + self.period:
            later = self.changes[self.changes > when]
            return float(later[0]) if len(later) else self.start + self.period
        if self.end != "repeat":
            later = self.changes[self.changes > when]
            return float(later[0]) if len(later) else np.inf
        begun = (when - self.start) // self.period * self.period
        later = self.changes[self.changes + begun > when]
        found = float(later[0]) + begun if len(later) else begun + self.period + self.start
        return found if found > when else float(np.nextafter(when, np.inf))
