"""Tables, from one list of columns: for a terminal, a page or a paper.

`joulemesh.views.terminal.show_table` prints one, the macro ``table`` of ``assets/parts.html``
writes it into a page, and `joulemesh.views.latex.booktabs` into a paper. What is kept as CSV has
plain values: `joulemesh.study.runs.Table`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from joulemesh.views.words import difference_text, figure_text, target_text

if TYPE_CHECKING:
    from rich.text import Text

Cell: TypeAlias = "str | Text"
"""A cell; a text without style is shown as it is, brackets included."""

NONE = "–"  # where there is no figure


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str  # its header
    # 0 for a column that is always shown; where a terminal has no room for all of them, those of
    # the highest rank are left out first
    rank: int = 0
    figures: bool = True  # numbers, right-justified; others are left-justified
    # for texts that may be broken into lines, how many columns of a terminal these have at least
    prose: int | None = None
    heads: bool = False  # does a cell name its row?


@dataclass(frozen=True)
class Measure(Column):
    """A column of figures with intervals, from rows such as those of `Comparison.table`."""

    key: str = ""  # of the figure; half of its interval is ``KEY_ci95``
    label: str = ""  # what a paper calls it, where the unit follows from the figures
    unit: str = ""  # joules and seconds; ``"%"`` for a share
    kind: Literal["figure", "difference", "target", "count", "rate"] = "figure"

    def text(self, row: Mapping[str, Any]) -> str:
        """The figure of a row, with the prefix that suits it."""
        if self.kind == "target":
            return target_text(row, self.key, self.unit)
        value = row[self.key]
        if value is None:
            return NONE
        if self.kind in ("count", "rate"):
            return f"{value:,}" if self.kind == "count" else f"{value:.3g}"
        half, share = row[f"{self.key}_ci95"], self.unit == "%"
        if self.kind == "difference":
            return difference_text(value, half, share=share)
        return figure_text(value, half, "" if share else self.unit, share=share)


@dataclass(frozen=True)
class Table:
    """Columns and rows; the last cell of a shorter row says why it has no figures."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    kind: str = ""  # of the page's table: a class of its style
    first: int | None = None  # rows that a page shows before "… more"
    rest: str = ""  # what a page says of rows that are left out

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def whole(self) -> list[list[Cell]]:
        """Rows of equal length: a short one has the kind of its reason, and no figures."""
        width = len(self.columns)
        return [
            [*row]
            if len(row) == width
            else [*row[:-1], str(row[-1]).partition(":")[0], *[NONE] * (width - len(row))]
            for row in self.rows
        ]

    def part(self, which: Sequence[int]) -> Table:
        """Some of the columns."""
        rows = [[row[k] for k in which] for row in self.whole]
        return Table([self.columns[k] for k in which], rows, self.kind)
