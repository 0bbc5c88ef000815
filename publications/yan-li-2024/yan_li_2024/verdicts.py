"""The table of sentences and verdicts: on the console and in Markdown."""

from __future__ import annotations

__all__ = ["MARKS", "claims_markdown", "effect_words", "show_claims", "tally_words"]

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from joulemesh.views.markdown import table
from yan_li_2024.claims import VERDICTS, needs_words, sentences

if TYPE_CHECKING:
    from rich.console import Console

ClaimRow = Mapping[str, str]
"""A row of ``claims.csv``."""

MARKS = {
    "holds": "✓ holds",
    "does not hold": "✗ does not hold",
    "depends": "◐ depends",
    "undecided": "? undecided",
}
_COLOURS = {"holds": "green", "does not hold": "red", "depends": "cyan", "undecided": "yellow"}
_COUNTED = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "depends": ("depends", "depend"),
    "undecided": ("is undecided", "are undecided"),
}


def effect_words(row: ClaimRow) -> str:
    """The quantity in one number, with its interval or with what it had to be.

    >>> row = {"effect": "-0.938", "low": "-2.14", "high": "0.266", "unit": "points"}
    >>> effect_words(row | {"basis": "5 seeds", "needs": "> 0"})
    '−0.94 points [−2.14, +0.27]'
    >>> row = {"effect": "5.0647", "low": "5.0647", "high": "25.6", "unit": "times"}
    >>> effect_words(row | {"basis": "exact", "needs": "> 1"})
    '5.06 times (must be above 1)'
    """
    if not row["effect"]:
        return "no figure"
    unit = f" {row['unit']}" if row["unit"] else ""
    if row["basis"] == "exact":
        effect = _short(float(row["effect"]))
        needs = needs_words(row["needs"])
        return f"{effect}{unit} (must be {needs})" if needs else f"{effect}{unit}"
    if not row["low"]:
        return f"{_shown([row['effect']])[0]}{unit}"
    effect, low, high = _shown([row[name] for name in ("effect", "low", "high")])
    return f"{effect}{unit} [{low}, {high}]"


def _short(value: float) -> str:
    """A number with 3 significant figures.

    >>> _short(156688), _short(10), _short(0.0198427)
    ('157,000', '10', '0.0198')
    """
    near = float(f"{value:.3g}")
    return (f"{near:,.0f}" if abs(near) >= 1000 else f"{near:.3g}").replace("-", "−")


def _shown(cells: Sequence[str]) -> list[str]:
    """Signed, with as many decimals as give the largest of them 3 significant figures.

    >>> _shown(["-2.98e-08", "-14.1", "14.1"])
    ['0', '−14.1', '+14.1']
    """
    values = [float(cell) for cell in cells]
    most = max(map(abs, values))
    digits = 2 - math.floor(math.log10(most)) if most else 0
    shown = []
    for value in values:
        near = round(value, digits)
        words = f"{near:+,.{max(digits, 0)}f}" if near else "0"
        shown.append(words.replace("-", "−"))
    return shown


def tally_words(rows: Sequence[ClaimRow]) -> str:
    """How many sentences hold, do not, depend, and are undecided.

    >>> tally_words([{"sentence": "a", "verdict": "holds"}])
    '1 holds, 0 do not hold, 0 depend, 0 are undecided'
    """
    verdicts = [verdict for verdict, _ in sentences(rows)]
    counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    return ", ".join(f"{n} {_COUNTED[verdict][n != 1]}" for verdict, n in counts.items())


def show_claims(rows: Sequence[ClaimRow], console: Console) -> None:
    """Print the table of sentences.

    Args:
        rows: of ``claims.csv``.
        console: where.
    """
    from rich.text import Text

    from joulemesh.views.table import Cell, Column, Table
    from joulemesh.views.terminal import show_table

    columns = [
        Column("test", prose=12),
        Column("the paper says", prose=20),
        Column("verdict", prose=7),
        Column("effect [95 % interval]", prose=16),
        Column("basis", prose=5, rank=1),
    ]
    cells: list[list[Cell]] = []
    for verdict, tests in sentences(rows):
        for row in tests:
            mark = Text(MARKS[row["verdict"]], style=_COLOURS[row["verdict"]])
            if verdict != row["verdict"]:
                mark.append(f"\nsentence: {verdict}", style=_COLOURS[verdict])
            said = Text(f"“{row['sentence']}” ({row['section']})")
            decided = Text(f"{effect_words(row)}\n{row['quantity']}")
            cells.append([f"{row['figure']}\n{row['id']}", said, mark, decided, row["basis"]])
    show_table(console, Table(columns, cells), title="The paper's sentences", lines=True)
    of = "1 sentence" if len(sentences(rows)) == 1 else f"{len(sentences(rows))} sentences"
    console.print(f"of {of} ({len(rows)} tests) {tally_words(rows)}")


def claims_markdown(rows: Sequence[ClaimRow]) -> str:
    """The table of tests in Markdown, those of a sentence one after another.

    >>> row = dict.fromkeys(("figure", "section", "sentence", "quantity", "detail", "unit"), "τ*_i")
    >>> row |= {"id": "c", "verdict": "holds", "effect": "1", "low": "1", "high": "1"}
    >>> print(claims_markdown([row | {"basis": "exact", "needs": ""}]).splitlines()[2][:32])
    | “τ\\*\\_i” (τ\\*\\_i) | ✓ holds |
    """
    header = ["the paper says", "verdict", "part", "test", "effect [95 % interval]"]
    header += ["quantity", "basis"]
    cells = (
        (
            f"“{row['sentence']}” ({row['section']})",
            MARKS[verdict],
            row["figure"],
            MARKS[row["verdict"]],
            effect_words(row),
            row["quantity"],
            f"{row['basis']}: {row['detail']}",
        )
        for verdict, tests in sentences(rows)
        for row in tests
    )
    return table(header, cells) + "\n"
