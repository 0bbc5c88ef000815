"""Watts that a sensor shows now and then, integrated."""

from __future__ import annotations

__all__ = ["Sampled"]

import math
import threading
from collections.abc import Callable

from joulemesh.meters.meter import MeterError, MeterOptions

_MOST_W = 2e4
_MOST_BAD = 3  # readings in a row that may fail, as a busy bus makes them


class Sampled:
    """Integrates watts by the trapezoidal rule, in a thread of its own and at every call.

    Args:
        name: of the kind of meter.
        source: where the figures come from, in words.
        watts: reads the sensor; raises `MeterError` if it cannot.
        options: with the clock; without ``threads`` only calls sample.
        period_s: seconds between two samples of the thread.
        state: figures of what is measured, by name, as far as it tells.

    Raises:
        MeterError: the sensor cannot be read to begin with.

    >>> readings, seconds = iter([4.0, 6.0]), iter([0.0, 2.0])
    >>> options = MeterOptions(clock=seconds.__next__, threads=False)
    >>> Sampled("toy", "a toy", readings.__next__, options).joules()
    10.0
    """

    def __init__(
        self,
        name: str,
        source: str,
        watts: Callable[[], float],
        options: MeterOptions,
        period_s: float = 0.1,
        state: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self.name, self.source, self.state = name, source, state
        self._read_w, self._clock, self._period_s = watts, options.clock, period_s
        self._lock, self._over = threading.Lock(), threading.Event()
        self._total_j, self._bad = 0.0, 0
        self._error: MeterError | None = None
        self._watts, self._at = self._reading(), self._clock()
        self._thread: threading.Thread | None = None
        if options.threads:
            self._thread = threading.Thread(target=self._sample_on, name=name, daemon=True)
            self._thread.start()

    def joules(self) -> float:
        """Joules since the meter was opened.

        Raises:
            MeterError: the sensor has failed several times in a row.
        """
        self.sample()
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._total_j

    def close(self) -> None:
        """Stop sampling."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def sample(self) -> None:
        """Read the sensor once; what failed readings have missed, the next good one bridges."""
        with self._lock:
            try:
                watts = self._reading()
            except MeterError as error:
                self._bad += 1
                if self._bad > _MOST_BAD:
                    self._error = error
                return
            now = self._clock()
            self._total_j += (now - self._at) * (watts + self._watts) / 2
            self._watts, self._at, self._bad = watts, now, 0

    def _sample_on(self) -> None:
        while not self._over.wait(self._period_s) and self._error is None:
            self.sample()

    def _reading(self) -> float:
        watts = self._read_w()
        if not (math.isfinite(watts) and 0 <= watts <= _MOST_W):
            raise MeterError(f"{self.source}: {watts:g} W cannot be; use another meter")
        return watts
