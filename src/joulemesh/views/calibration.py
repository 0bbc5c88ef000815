"""What calibrations of devices and links have found, on the console."""

from __future__ import annotations

__all__ = ["calibration_lines", "links_remarks", "show_calibration", "show_links"]

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.printable import printable
from joulemesh.base.units import duration, si
from joulemesh.calibration.calibration import Calibration, Figure
from joulemesh.deploy.links.transfers import LinkFigures, Timed
from joulemesh.views.terminal import Cell, Column, open_console, show_table
from joulemesh.views.words import percent

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
    show_table(console, _COLUMNS, _rows(found), title=found.name)
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
    show_table(console, _LINKS, rows, box=SIMPLE_HEAD)
    for words in links_remarks(found, use):
        console.print(Text(words))


def _row(link: LinkFigures, use: str) -> list[Cell]:
    either = next((one for one in (link.alone, link.together) if one is not None), None)
    ends = (either.here, either.there) if either else (str(link.i), str(link.j))
    if link.trouble:
        return [*map(printable, ends), *["–"] * 6, Text(printable(link.trouble), "bold red")]
    rate, taken = link.rate(use), link.chosen(use)
    again = taken.retransmitted
    return [
        *map(printable, ends),
        si(rate.bps, "bit/s"),
        f"{si(rate.low, 'bit/s')} to {si(rate.high, 'bit/s')}",
        _alone(link.alone),
        _alone(link.together),
        duration(taken.rtt_s),
        "–" if again is None else percent(again),
        Text("interval is wide", "yellow") if rate.wide else Text(""),
    ]


def _alone(timed: Timed | None) -> str:
    return si(timed.rate.bps, "bit/s") if timed is not None and timed.seconds else "–"


def links_remarks(found: Sequence[LinkFigures], use: str) -> Iterator[str]:
    """What to do about figures that cannot be relied on.

    >>> fast = Timed("a", "b", 125, (0.1, 0.1, 0.1))
    >>> list(links_remarks([LinkFigures(0, 1, fast)], "lower"))
    ['segments sent again are not known: this system does not show them (TCP_INFO, Linux only)']
    """
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
