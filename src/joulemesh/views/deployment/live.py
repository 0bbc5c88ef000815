"""A fleet at work, on standard error: a live table in a terminal, otherwise now and then a line."""

from __future__ import annotations

__all__ = ["FleetDisplay"]

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from joulemesh.deploy.operator.standing import Standing
from joulemesh.printable import say
from joulemesh.views.deployment.tables import status_summary, status_table
from joulemesh.views.terminal import open_console

_HEAD_LINES = 6  # of a table that fits a terminal: its head, its foot and what is below


class FleetDisplay:
    """Shows how a fleet stands.

    Args:
        quiet: show nothing.
        every_s: seconds between two lines, if the output is not a terminal.
        clock: seconds.

    >>> with FleetDisplay(quiet=True) as display:
    ...     display.show([Standing(0, "gate", "training", 0, 3, 20)])
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        every_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        self._console = console or open_console(stderr=True)
        self._quiet, self._every_s, self._clock = quiet, every_s, clock
        terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        if terminal and not quiet:
            self._live = Live(console=self._console, auto_refresh=False)
        self._said, self._said_at = "", -math.inf
        self._latest: Sequence[Standing] = ()

    def show(self, standings: Sequence[Standing]) -> None:
        """Show how all devices stand."""
        self._latest = standings
        if self._quiet:
            return
        if self._live is not None:
            rows = max(1, self._console.height - _HEAD_LINES)
            table = status_table(standings, self._console, most_rows=rows)
            self._live.update(table, refresh=True)
        elif self._clock() - self._said_at >= self._every_s:
            self._say()

    def _say(self) -> None:
        words = status_summary(self._latest)
        if words != self._said:
            say(words, err=True)
        self._said, self._said_at = words, self._clock()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._latest and not self._quiet:
            self._say()
