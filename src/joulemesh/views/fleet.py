"""Calibrations, links and fleets in a terminal."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from joulemesh.base.errors import printable, say
from joulemesh.base.units import duration, energy, si
from joulemesh.calibration.calibration import Calibration, Figure
from joulemesh.deploy.links.transfers import LinkFigures, Timed
from joulemesh.deploy.operator.standing import Probe, Standing
from joulemesh.views.table import NONE, Cell, Column, Table
from joulemesh.views.terminal import fitted, open_console, show_table
from joulemesh.views.words import few_names, percent

_COLUMNS = [Column("figure", figures=False), Column("mean"), Column("95 % interval"), Column("±")]


def _rows(found: Calibration) -> list[list[str]]:
    """Figures with their intervals; those that are not known are left out."""
    named: list[tuple[str, Figure | None, str]] = [
        ("seconds of a step", found.step_s, "s"),
        ("joules of a step, above rest", found.step_j, "J"),
        ("joules of a step, in all", found.step_total_j, "J"),
        ("watts at rest", found.idle_w, "W"),
        ("watts while training", found.train_w, "W"),
        ("seconds of a call beside its steps", found.overhead_s, "s"),
    ]
    return [[name, *_cells(figure, unit)] for name, figure, unit in named if figure is not None]


def _cells(figure: Figure, unit: str) -> list[str]:
    if not figure.blocks:
        return [si(figure.mean, unit), "declared", ""]
    ends = f"{si(figure.low, unit)} to {si(figure.high, unit)}"
    return [si(figure.mean, unit), ends, f"{figure.relative:.1%}" if figure.mean else ""]


def calibration_lines(found: Calibration) -> list[str]:
    """What is to be read beside the figures: what was trained, where, by which meter; and notes."""
    work, where = found.work, found.conditions
    blocks = sum(block.kind == "train" for block in found.blocks)
    seconds = sum(block.seconds for block in found.blocks)
    machine = f"{where.machine}, {where.cores} cores"
    known = [machine, where.accelerator, where.governor and f"governor {where.governor}"]
    lines = [
        f"trained  {work.model} on {work.dataset}, batches of {work.batch_size}; {blocks} blocks, "
        f"{duration(round(seconds))} in all",
        f"on       {'; '.join(part for part in known if part)}",
        f"meter    {found.meter or 'none'}",
    ]
    notes = [f"note: {note}" for note in found.notes]
    return [*lines, *notes, *(f"WIDE INTERVAL: {line}" for line in found.wide)]


def show_calibration(found: Calibration, console: Console | None = None) -> None:
    """Print the figures, and what is to be known about them."""
    console = console or open_console()
    show_table(console, Table(_COLUMNS, _rows(found)), title=found.name)
    console.print(Text("\n".join(calibration_lines(found))), soft_wrap=True)


_LINKS = (
    Column("from", figures=False),
    Column("to", figures=False),
    Column("rate"),
    Column("95 % interval", rank=1),
    Column("alone", rank=2),
    Column("all at once", rank=2),
    Column("round trip", rank=2),
    Column("sent again", rank=3),
    Column("remarks", figures=False, prose=18),
)


def show_links(found: Sequence[LinkFigures], use: str, console: Console) -> None:
    """Print every direction that was measured; those that could not be come first."""
    rows = [_row(one, use) for one in sorted(found, key=lambda one: not one.trouble)]
    show_table(console, Table(_LINKS, rows), box=SIMPLE_HEAD)
    for words in links_remarks(found, use):
        console.print(Text(words))


def _row(link: LinkFigures, use: str) -> list[Cell]:
    either = next((one for one in (link.alone, link.together) if one is not None), None)
    ends = (either.here, either.there) if either else (str(link.i), str(link.j))
    if link.trouble:
        return [*map(printable, ends), *[NONE] * 6, Text(printable(link.trouble), "bold red")]
    rate, taken = link.rate(use), link.chosen(use)
    again = taken.retransmitted
    return [
        *map(printable, ends),
        si(rate.bps, "bit/s"),
        f"{si(rate.low, 'bit/s')} to {si(rate.high, 'bit/s')}",
        _alone(link.alone),
        _alone(link.together),
        duration(taken.rtt_s),
        NONE if again is None else percent(again),
        Text("interval is wide", "yellow") if rate.wide else Text(""),
    ]


def _alone(timed: Timed | None) -> str:
    return si(timed.rate.bps, "bit/s") if timed is not None and timed.seconds else NONE


def links_remarks(found: Sequence[LinkFigures], use: str) -> Iterator[str]:
    """What to do about figures that cannot be relied on."""
    good = [one for one in found if not one.trouble]
    wide = [one for one in good if one.rate(use).wide]
    if wide:
        yield (
            f"{len(wide)} of {len(good)} rates have an interval wider than ±10 %: measure for "
            "longer (--time 1min), while nothing else uses the network, or plan with plan.safety"
        )
    slower = [one for one in good if one.alone and one.together and _ratio(one) < 0.8]
    if slower:
        least = min(slower, key=_ratio)
        assert least.alone is not None
        yield (
            f"{len(slower)} of {len(good)} rates fall by more than 20 % when all links are in use, "
            f"{least.alone.here} to {least.alone.there} to {percent(_ratio(least))} of what it has "
            "alone: devices share a medium or a processor"
        )
    if good and all(one.chosen(use).retransmitted is None for one in good):
        yield (
            "segments sent again are not known: this system does not show them (TCP_INFO, Linux "
            "only)"
        )


def _ratio(link: LinkFigures) -> float:
    assert link.alone is not None
    assert link.together is not None
    if not (link.alone.seconds and link.together.seconds):
        return 1.0
    return link.together.rate.bps / link.alone.rate.bps


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
    """How the fleet stands, as something to print or to show live."""
    shown = list(standings)
    if len(shown) > most_rows:
        shown = sorted(shown, key=_urgency)[:most_rows]
    table, left_out = fitted(
        console, Table(_STATUS, [_status(one) for one in shown]), box=SIMPLE_HEAD
    )
    below = [Text(status_summary(standings))]
    if len(shown) < len(standings):
        below.append(Text(f"{len(standings) - len(shown):,} more devices, not shown", style="dim"))
    return Group(table, *([left_out] if left_out else []), *below)


def _urgency(one: Standing) -> tuple[bool, bool, int, int]:
    return (not one.trouble, bool(one.phase), one.iteration, one.device)


def _status(one: Standing) -> list[Cell]:
    if not one.phase:
        return [one.name, Text("no answer", _TROUBLE), *[NONE] * 8, _trouble(one.trouble)]
    left_j = one.battery_j - one.spent_j
    return [
        one.name,
        Text(one.phase, _WAITING if one.waiting else ""),
        f"{one.iteration:,} / {one.iterations:,}",
        str(one.view),
        energy(one.spent_j),
        energy(one.planned_j),
        percent(left_j / one.battery_j) if one.battery_j else NONE,
        duration(one.elapsed_s),
        duration(one.planned_s),
        NONE if one.accuracy is None else percent(one.accuracy),
        _remarks(one),
    ]


def _remarks(one: Standing) -> Text:
    if one.trouble:
        return _trouble(one.trouble)
    if one.waiting:
        return Text(f"waits for {few_names(one.waiting, 3)}", _WAITING)
    timed, late = one.late
    if late:
        return Text(f"{late:,} of {timed:,} iterations over the deadline, worst {one.worst:.2g} ×")
    return Text("")


def _trouble(text: str) -> Text:
    return Text(printable(text), _TROUBLE)


def status_summary(standings: Sequence[Standing]) -> str:
    """The fleet in a line: how many do what, how far they are, what they have spent."""
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
    show_table(console, Table(_CHECK, rows), box=SIMPLE_HEAD)
    console.print(Text(check_summary(probes)))


def _check(one: Probe) -> list[Cell]:
    slow = one.rate_bps is not None and (one.rate_bps < _SLOW_SHARE * (one.planned_bps or 0.0))
    rate = NONE if one.rate_bps is None else si(one.rate_bps, "bit/s")
    return [
        one.here,
        one.there,
        one.address,
        one.certificate or NONE,
        NONE if one.clock_s is None else _clock(one.clock_s),
        one.version or NONE,
        Text(rate, _WAITING if slow else ""),
        NONE if one.planned_bps is None else si(one.planned_bps, "bit/s"),
        _trouble(one.trouble) if one.trouble else Text("slow" if slow else "good"),
    ]


def _clock(seconds: float) -> str:
    """How far a clock is off; what a round trip hides is no error."""
    if abs(seconds) < 0.5:
        return "exact"
    return f"{duration(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"


def check_summary(probes: Sequence[Probe]) -> str:
    """All links in a line."""
    links = f"{len(probes):,} link{'' if len(probes) == 1 else 's'}"
    bad = sum(bool(one.trouble) for one in probes)
    mute = sum(not one.reachable for one in probes)
    if not bad:
        return f"no problem on {links}"
    return f"problems on {bad:,} of {links}, {mute:,} of them unreachable"


_HEAD_LINES = 6  # of a table that fits a terminal: its head, its foot and what is below


class FleetDisplay:
    """Shows how a fleet stands."""

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
