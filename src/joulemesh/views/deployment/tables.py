"""A fleet in a terminal: who is up and how far it has come, and what was found on its links."""

from __future__ import annotations

__all__ = [
    "FleetDisplay",
    "check_summary",
    "show_check",
    "show_status",
    "status_summary",
    "status_table",
]

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from joulemesh.base.printable import printable, say
from joulemesh.base.units import duration, energy, si
from joulemesh.deploy.operator.standing import Probe, Standing
from joulemesh.views.terminal import Cell, Column, fitted, open_console, show_table
from joulemesh.views.words import percent

_MOST_ROWS = 40
_SLOW_SHARE = 0.8  # of the planned rate, below which a link is shown as slow
_TROUBLE, _WAITING = "bold red", "yellow"

_STATUS = (
    Column("device", figures=False),
    Column("doing", figures=False),
    Column("iteration"),
    Column("view", rank=3),
    Column("metered", rank=1),
    Column("planned", rank=2),
    Column("battery left", rank=1),
    Column("time", rank=2),
    Column("planned time", rank=3),
    Column("accuracy", rank=2),
    Column("remarks", figures=False, prose=18),
)
_CHECK = (
    Column("from", figures=False),
    Column("to", figures=False),
    Column("address", rank=2, figures=False),
    Column("certificate", rank=1, figures=False),
    Column("clock", rank=1),
    Column("version", rank=3, figures=False),
    Column("rate"),
    Column("planned rate", rank=2),
    Column("result", figures=False, prose=18),
)


def status_table(
    standings: Sequence[Standing], console: Console, *, most_rows: int = _MOST_ROWS
) -> RenderableType:
    """How the fleet stands, as something to print or to show live.

    Of a large fleet the devices in trouble come first, then those that have come least far.

    Args:
        standings: of all devices.
        console: where it is to be shown, which decides on the columns.
        most_rows: how many devices have a row; the others are counted below.

    >>> one = Standing(0, "gate", "training", 0, 3, 20, 1.5, 1.6, 6.0, 4.0, 3.5)
    >>> console = Console(width=58)
    >>> with console.capture() as caught:
    ...     console.print(status_table([one], console))
    >>> for line in caught.get().splitlines()[1:4]:
    ...     print(line.strip())
    device   doing      iteration   metered   remarks
    ─────────────────────────────────────────────────
    gate     training      3 / 20     1.5 J
    """
    shown = list(standings)
    if len(shown) > most_rows:
        shown = sorted(shown, key=_urgency)[:most_rows]
    table, left_out = fitted(console, _STATUS, [_status(one) for one in shown], box=SIMPLE_HEAD)
    below = [Text(status_summary(standings))]
    if len(shown) < len(standings):
        below.append(Text(f"{len(standings) - len(shown):,} more devices, not shown", style="dim"))
    return Group(table, *([left_out] if left_out else []), *below)


def _urgency(one: Standing) -> tuple[bool, bool, int, int]:
    return (not one.trouble, bool(one.phase), one.iteration, one.device)


def _status(one: Standing) -> list[Cell]:
    if not one.phase:
        return [one.name, Text("no answer", _TROUBLE), *["–"] * 8, _trouble(one.trouble)]
    left_j = one.battery_j - one.spent_j
    return [
        one.name,
        Text(one.phase, _WAITING if one.waiting else ""),
        f"{one.iteration:,} / {one.iterations:,}",
        str(one.view),
        energy(one.spent_j),
        energy(one.planned_j),
        percent(left_j / one.battery_j) if one.battery_j else "–",
        duration(one.elapsed_s),
        duration(one.planned_s),
        "–" if one.accuracy is None else percent(one.accuracy),
        _remarks(one),
    ]


def _remarks(one: Standing) -> Text:
    if one.trouble:
        return _trouble(one.trouble)
    if one.waiting:
        return Text(f"waits for {_names(one.waiting)}", _WAITING)
    timed, late = one.late
    if late:
        return Text(f"{late:,} of {timed:,} iterations over the deadline, worst {one.worst:.2g} ×")
    return Text("")


def _trouble(text: str) -> Text:
    """What a device said, perhaps a foreign one: nothing of it may steer the terminal."""
    return Text(printable(text), _TROUBLE)


def _names(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def status_summary(standings: Sequence[Standing]) -> str:
    """The fleet in a line: how many do what, how far they are, what they have spent.

    >>> status_summary([Standing(0, "gate", "training", 0, 3, 20, 1.5), Standing(1, "barn")])
    '1 of 2 devices answer: 1 training; iteration 3 of 20; 1.5 J metered, 0 J planned so far'
    """
    up = [one for one in standings if one.phase]
    head = f"{len(up):,} of {len(standings):,} devices answer"
    if not up:
        return head
    doing = ", ".join(f"{n:,} {what}" for what, n in Counter(one.phase for one in up).most_common())
    low, high = min(one.iteration for one in up), max(one.iteration for one in up)
    where = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    spent, planned = sum(one.spent_j for one in up), sum(one.planned_j for one in up)
    return (
        f"{head}: {doing}; iteration {where} of {max(one.iterations for one in up):,}; "
        f"{energy(spent)} metered, {energy(planned)} planned so far"
    )


def show_status(standings: Sequence[Standing], console: Console) -> None:
    """Print how the fleet stands; in a file every device has its row."""
    rows = _MOST_ROWS if console.is_terminal else len(standings)
    console.print(status_table(standings, console, most_rows=rows), crop=False)


def show_check(probes: Sequence[Probe], console: Console) -> None:
    """Print what was found on every link; what is wrong comes first."""
    rows = [_check(one) for one in sorted(probes, key=lambda one: not one.trouble)]
    show_table(console, _CHECK, rows, box=SIMPLE_HEAD)
    console.print(Text(check_summary(probes)))


def _check(one: Probe) -> list[Cell]:
    slow = one.rate_bps is not None and (one.rate_bps < _SLOW_SHARE * (one.planned_bps or 0.0))
    rate = "–" if one.rate_bps is None else si(one.rate_bps, "bit/s")
    return [
        one.here,
        one.there,
        one.address,
        one.certificate or "–",
        "–" if one.clock_s is None else _clock(one.clock_s),
        one.version or "–",
        Text(rate, _WAITING if slow else ""),
        "–" if one.planned_bps is None else si(one.planned_bps, "bit/s"),
        _trouble(one.trouble) if one.trouble else Text("slow" if slow else "good"),
    ]


def _clock(seconds: float) -> str:
    """How far a clock is off; what a round trip hides is no error.

    >>> _clock(0.004), _clock(-42.0), _clock(7200.0)
    ('exact', '42 s behind', '2 h ahead')
    """
    if abs(seconds) < 0.5:
        return "exact"
    return f"{duration(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"


def check_summary(probes: Sequence[Probe]) -> str:
    """All links in a line.

    >>> check_summary([Probe("laptop", "gate", "10.0.0.7:7711", True)])
    'no problem on 1 link'
    """
    links = f"{len(probes):,} link{'' if len(probes) == 1 else 's'}"
    bad = sum(bool(one.trouble) for one in probes)
    mute = sum(not one.reachable for one in probes)
    if not bad:
        return f"no problem on {links}"
    return f"problems on {bad:,} of {links}, {mute:,} of them unreachable"


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
