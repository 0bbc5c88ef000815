"""Ctrl-C asks a run to stop at its next safe moment; a second one stops it at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeAlias

__all__ = ["Interrupt"]

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Interrupt:
    """While entered, the first SIGINT (or SIGTERM) only sets ``asked``.

    Args:
        settle_s: signals that follow the first within so many seconds are the same wish: a
            process may be told by its terminal, by its parent and by its cluster.

    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

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
