"""Timers with names, on the event loop's clock, which nobody sets."""

from __future__ import annotations

__all__ = ["Timers"]

import math
from collections.abc import Callable

from joulemesh.deploy.device.host import Clock, Handle

_LATE_S = 1.0
_GRACE_S = 0.25


class Timers:
    """Calls back when time is up. A process that slept reads what came meanwhile first.

    A timer that is late by more than a second has missed messages that wait to be read: a node
    that was stopped for a minute must not suspect everybody whose signs of life it has not read.

    Args:
        ring: called with a timer's name.
        clock: an event loop, or what stands for one.

    >>> async def example() -> list[str]:
    ...     rung = []
    ...     timers = Timers(rung.append, asyncio.get_running_loop())
    ...     timers.set("tea", 60.0)
    ...     timers.set("tea", 0.0)
    ...     await asyncio.sleep(0.01)
    ...     return rung
    >>> import asyncio
    >>> asyncio.run(example())
    ['tea']
    """

    def __init__(self, ring: Callable[[str], None], clock: Clock) -> None:
        self._ring, self._clock = ring, clock
        self._set: dict[str, Handle] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._set

    def set(self, name: str, after_s: float) -> None:
        """Ring after so many seconds; a timer of the same name is replaced."""
        self.cancel(name)
        due = self._clock.time() + max(0.0, after_s)
        self._set[name] = self._clock.call_at(due, self._up, name, due + _LATE_S)

    def cancel(self, name: str) -> None:
        """Do not ring."""
        before = self._set.pop(name, None)
        if before is not None:
            before.cancel()

    def close(self) -> None:
        """Ring no more."""
        for name in tuple(self._set):
            self.cancel(name)

    def _up(self, name: str, late: float) -> None:
        now = self._clock.time()
        if now > late:
            self._set[name] = self._clock.call_at(now + _GRACE_S, self._up, name, math.inf)
            return
        del self._set[name]
        self._ring(name)
