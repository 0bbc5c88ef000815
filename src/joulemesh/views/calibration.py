"""A calibration in the terminal."""

from __future__ import annotations

__all__ = ["calibration_lines", "show_calibration"]

from rich.console import Console
from rich.text import Text

from joulemesh.calibration.calibration import Calibration
from joulemesh.calibration.figure import Figure
from joulemesh.units import duration, si
from joulemesh.views.terminal import Column, open_console, show_table

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
