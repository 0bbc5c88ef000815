"""Consoles and tables that fit what they are shown on; figures are never cut."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import rich.table
from numpy.typing import NDArray
from rich.box import HEAVY_HEAD, SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from joulemesh.base.errors import printable
from joulemesh.views.table import Cell, Column, Table

_UNBOUNDED = 10_000  # columns if the output is not a terminal: a file has no edge
_BARS = "▁▂▃▄▅▆▇█"
_LABEL = 12  # columns that the names of rows take
_MOST_PROSE = 72  # beyond, a line of prose is hard to read


def open_console(*, stderr: bool = False) -> Console:
    """A console as wide as its terminal; in a file or a pipe, as wide as what is printed."""
    console = Console(stderr=stderr, markup=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console = Console(stderr=stderr, markup=False, width=_UNBOUNDED)
    console.push_render_hook(_Safely())
    return console


def text_of(show: Callable[[Console], None]) -> str:
    """What something prints, as plain text for a terminal of the present width."""
    console = Console(
        file=io.StringIO(), markup=False, width=open_console().width, color_system=None
    )
    console.push_render_hook(_Safely())
    with console.capture() as printed:
        show(console)
    lines = [line.rstrip() for line in printed.get().splitlines()]
    return "\n".join(lines).strip("\n")


class _Safely(RenderHook):
    """Shows control codes within texts as escapes; those of the console itself remain."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Safe(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Safe:
    """Something to be shown, of which every piece of text is made printable."""

    shown: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.shown, options):
            yield Segment(text if control else printable(text, lines=True), style, control)


def show_whole(table: Table, console: Console, box: Box = SIMPLE_HEAD) -> bool:
    """Print a table if it fits the console as it is, with nothing broken or left out."""
    fits = _Sheet(table.columns, table.whole).width(console, box) <= console.width
    if fits:
        show_table(console, table, box=box)
    return fits


def show_table(
    console: Console,
    table: Table,
    *,
    title: str | None = None,
    caption: str | None = None,
    box: Box = HEAVY_HEAD,
    lines: bool = False,
) -> None:
    """Print a table without cutting a figure."""
    shown, left_out = fitted(console, table, box=box)
    shown.title, shown.caption, shown.show_lines = title, caption or table.rest or None, lines
    console.print(shown, crop=False)
    if left_out:
        console.print(left_out)


def fitted(
    console: Console, table: Table, *, box: Box = HEAVY_HEAD
) -> tuple[rich.table.Table, Text]:
    """The table that `show_table` prints, and the line that names the columns left out."""
    columns = table.columns
    rows = [[_printable(cell) for cell in row] for row in table.whole]
    kept, broken = list(range(len(columns))), False
    while True:
        sheet = _Sheet(
            [columns[k] for k in kept], [[row[k] for k in kept] for row in rows], broken=broken
        )
        spare = console.width - sheet.width(console, box)
        last = max(kept, key=lambda k: (columns[k].rank, k))
        if spare >= 0 or (broken and columns[last].rank == 0):
            break
        if broken:
            kept.remove(last)
        broken = True
    shown = sheet.table(box, spare)
    if spare < 0:
        shown.width = console.width - spare
    left_out = [column.name for k, column in enumerate(columns) if k not in kept]
    return shown, Text(f"not shown: {', '.join(left_out)}" if left_out else "", style="dim")


def _printable(cell: Cell) -> Cell:
    return printable(cell, lines=True) if isinstance(cell, str) else cell


class _Sheet:
    """Columns and rows, and how much room they take."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, broken: bool = False
    ) -> None:
        self.columns, self.rows = columns, rows
        whole = [not broken or column.prose is not None for column in columns]
        names = [column.name for column in columns]
        self.headers = [
            name if keep else name.replace(" ", "\n")
            for name, keep in zip(names, whole, strict=True)
        ]
        cells = [[str(row[k]) for row in rows] for k in range(len(columns))]
        natural = [
            max(cell_len(line) for text in (header, *texts) for line in text.split("\n"))
            for header, texts in zip(self.headers, cells, strict=True)
        ]
        prose = [column.prose for column in columns]
        self.least = [
            width if short is None else min(width, short)
            for width, short in zip(natural, prose, strict=True)
        ]
        self.most = [
            width if short is None else min(width, _MOST_PROSE)
            for width, short in zip(natural, prose, strict=True)
        ]

    def width(self, console: Console, box: Box) -> int:
        """Columns of the console that the table takes at least."""
        free = console.options.update(width=_UNBOUNDED)
        return Measurement.get(console, free, self.table(box, 0)).maximum

    def table(self, box: Box, spare: int) -> rich.table.Table:
        """The table, with ``spare`` columns of the console more than the least."""
        widths = list(self.least)
        while spare > 0 and widths != self.most:
            wants = [most - width for most, width in zip(self.most, widths, strict=True)]
            # All prose grows alike, up to its natural width.
            step = max(1, min(spare // sum(want > 0 for want in wants), *filter(None, wants)))
            for k, want in enumerate(wants):
                grown = min(step, want, spare)
                widths[k] += grown
                spare -= grown
        table = rich.table.Table(header_style="bold", box=box, pad_edge=False)
        for column, header, width in zip(self.columns, self.headers, widths, strict=True):
            right = column.figures and column.prose is None
            table.add_column(
                Text(header),
                justify="right" if right else "left",
                width=width,
                no_wrap=column.prose is None,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        return table


def sparkline(values: NDArray[np.float64], width: int = 60) -> str:
    """A row of bars, averaged down to ``width`` columns; the lowest bar is 0."""
    parts = np.array_split(values, min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    top = max(float(means.max()), 1e-300)
    return "".join(_BARS[round(7 * max(m, 0.0) / top)] for m in means)


def picture(values: NDArray[np.float64], console: Console) -> str:
    """A sparkline that fits beside a label."""
    return sparkline(values, min(60, max(console.width - _LABEL, 1)))


def show_row(label: str, text: str, console: Console) -> None:
    """Print a text beside a label, wrapped there."""
    lines = Text(text).wrap(console, max(console.width - _LABEL, _LABEL))
    for k, line in enumerate(lines):
        line.rstrip()
        head = label if k == 0 else ""
        console.print(Text.assemble((f"{head:<{_LABEL - 1}} ", "bold"), line), soft_wrap=True)
