"""Ctrl-C asks a run to stop at its next safe moment; a second one stops it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

__all__ = ["Interrupt"]


class Interrupt:
    """While entered, the first SIGINT (or SIGTERM) only sets ``asked``.

    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self.asked = False
        self.stopped_at: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may signals be set
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
