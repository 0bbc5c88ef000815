"""A counter of joules that starts again at 0 when it is full."""

from __future__ import annotations

__all__ = ["Counter"]

from collections.abc import Callable

from joulemesh.meters.meter import MeterError

_MOST_W = 2e4  # no part of a machine that has such a counter draws more
_SLACK_S = 1.0  # what was counted between two moments may have been drawn a little earlier


class Counter:
    """Joules since the first reading, by a counter that wraps.

    Between two readings it may start again once: a counter of 65 kJ at 200 W has to be read every
    five minutes.

    Args:
        what: names it in a refusal.
        read_j: gives joules since an unknown moment.
        clock: seconds of a clock that nobody sets.
        range_j: joules at which it starts again; None if it never does.

    Raises:
        MeterError: it cannot be read.

    >>> readings, seconds = iter([90.0, 95.0, 3.0]), iter([0.0, 1.0, 2.0])
    >>> counter = Counter("toy", readings.__next__, seconds.__next__, range_j=100.0)
    >>> counter.joules(), counter.joules()
    (5.0, 13.0)
    """

    def __init__(
        self,
        what: str,
        read_j: Callable[[], float],
        clock: Callable[[], float],
        range_j: float | None = None,
    ) -> None:
        self._what, self._read_j, self._clock, self._range_j = what, read_j, clock, range_j
        self._total_j = 0.0
        self._last_j, self._at = self._reading(), clock()

    def joules(self) -> float:
        """Joules since the first reading.

        Raises:
            MeterError: it cannot be read, or jumps as no counter of energy does.
        """
        now_j, at = self._reading(), self._clock()
        step = now_j - self._last_j
        if step < 0 and self._range_j is not None:
            step += self._range_j
        most = _MOST_W * (at - self._at + _SLACK_S)
        if not 0 <= step <= most:
            raise MeterError(
                f"{self._what} jumped from {self._last_j:.6g} J to {now_j:.6g} J in "
                f"{at - self._at:.1f} s; it was reset (did the machine sleep?): measure again"
            )
        self._total_j += step
        self._last_j, self._at = now_j, at
        return self._total_j

    def _reading(self) -> float:
        found = self._read_j()
        if found < 0:
            raise MeterError(f"{self._what} says {found:.6g} J, which is negative; use another")
        return found
