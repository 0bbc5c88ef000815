"""The table of claims and verdicts: on the console and in Markdown."""

from __future__ import annotations

__all__ = ["MARKS", "claims_markdown", "effect_words", "show_claims", "signed"]

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from joulemesh.views.markdown import table

if TYPE_CHECKING:
    from rich.console import Console

ClaimRow = Mapping[str, str]
"""A row of ``claims.csv``."""

MARKS = {"holds": "✓ holds", "does not hold": "✗ does not hold", "undecided": "? undecided"}
_COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


def effect_words(row: ClaimRow) -> str:
    """The quantity with its interval, or its range where it is exact.

    >>> row = {"effect": "0.02", "low": "0.01", "high": "0.03", "unit": "accuracy", "basis": "5"}
    >>> effect_words(row)
    '+0.02 [+0.01, +0.03] accuracy'
    >>> effect_words(row | {"basis": "exact", "low": "-93.25", "high": "157123", "unit": "%"})
    '−93.2 to +157,000 %'
    """
    if not row["effect"]:
        return "no figure"
    effect, low, high = (signed(row[k]) for k in ("effect", "low", "high"))
    if row["basis"] == "exact":
        words = effect if low == high else f"{low} to {high}"
    else:
        words = f"{effect} [{low}, {high}]" if low else effect
    return f"{words} {row['unit']}".strip()


def signed(number: str) -> str:
    """A cell of ``claims.csv`` with its sign and 3 significant figures; nothing if it is empty.

    >>> signed("-901234"), signed("0.00022"), signed("0"), signed("")
    ('−901,000', '+0.00022', '0', '')
    """
    if not number:
        return ""
    short = float(f"{float(number):.3g}")
    words = f"{short:+,.0f}" if abs(short) >= 1000 else f"{short:+.3g}"
    return "0" if short == 0 else words.replace("-", "−")


def show_claims(rows: Sequence[ClaimRow], console: Console) -> None:
    """Print the table of claims.

    Args:
        rows: of ``claims.csv``.
        console: where.
    """
    from rich.text import Text

    from joulemesh.views.terminal import Cell, Column, show_table

    columns = [
        Column("claim", prose=12),
        Column("the paper says", prose=20),
        Column("verdict", prose=7),
        Column("effect [95 % interval]", prose=16),
        Column("basis", prose=5, rank=1),
    ]
    cells: list[list[Cell]] = []
    for row in rows:
        verdict = Text(MARKS[row["verdict"]], style=_COLOURS[row["verdict"]])
        said = Text(f"“{row['sentence']}” ({row['section']})")
        decided = Text(f"{effect_words(row)}\n{row['quantity']}")
        cells.append([f"{row['figure']}\n{row['id']}", said, verdict, decided, row["basis"]])
    show_table(console, columns, cells, title="The paper's sentences", lines=True)
    counts = [
        f"{sum(row['verdict'] == verdict for row in rows)} {words}"
        for verdict, words in (
            ("holds", "hold"),
            ("does not hold", "do not hold"),
            ("undecided", "are undecided"),
        )
    ]
    console.print(f"of {len(rows)} claims {', '.join(counts)}")


def claims_markdown(rows: Sequence[ClaimRow]) -> str:
    """The table in Markdown.

    >>> row = dict.fromkeys(("figure", "section", "sentence", "quantity", "detail", "unit"), "τ*_i")
    >>> row |= {"id": "c", "verdict": "holds", "effect": "1", "low": "1", "high": "1"}
    >>> print(claims_markdown([row | {"basis": "exact"}]).splitlines()[2][:32])
    | τ\\*\\_i | “τ\\*\\_i” (τ\\*\\_i) | ✓
    """
    header = ("figure", "the paper says", "verdict", "effect [95 % interval]", "quantity", "basis")
    cells = (
        (
            row["figure"],
            f"“{row['sentence']}” ({row['section']})",
            MARKS[row["verdict"]],
            effect_words(row),
            row["quantity"],
            f"{row['basis']}: {row['detail']}",
        )
        for row in rows
    )
    return table(header, cells) + "\n"
