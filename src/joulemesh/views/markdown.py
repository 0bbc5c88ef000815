"""Markdown made from data: quotations, names and figures that must be read as they are.

`τ*_{i,t}` between two others of its kind is emphasis to a Markdown renderer, which then drops the
asterisks. Whatever a generated page takes from data passes through `escape`, or `code`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Python-Markdown takes a backslash before few characters, these among them; GitHub before any
# punctuation. An underscore between letters or digits means nothing to either.
_BACKSLASHED = re.compile(r"[\\`*{\[|]|(?<![^\W_])_|_(?![^\W_])")
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "~": "&#126;", "$": "&#36;"}
# What begins a block: a list, a heading, an admonition, a tab, an mkdocstrings reference.
_BLOCK = re.compile(r"^(\d*)(?:([-+]|(?<=\d)[.)])(?=\s|-|$)|(#)|(!|\?|=|:)(?=\4\4))")


class Markdown(str):
    """Text that is Markdown already: `escape` and `table` leave it as it is."""

    __slots__ = ()


def escape(text: str) -> Markdown:
    """Markdown that is rendered as the text itself, in a paragraph or a cell of a table."""
    if isinstance(text, Markdown):
        return text
    line = " ".join(text.split())
    line = re.sub(r"[&<>~$]", lambda found: _NAMED[found[0]], line)
    line = _BACKSLASHED.sub(r"\\\g<0>", line)
    return Markdown(_BLOCK.sub(_as_entity, line))


def code(text: str) -> Markdown:
    """Markdown that is rendered as the text in the type of code."""
    line = " ".join(text.splitlines())
    if "`" not in line and "|" not in line:
        return Markdown(f"`{line}`")
    # Renderers differ in what a bar within backticks means in a table; an entity is always a bar.
    entities = "".join(f"&#{ord(one)};" if one in "&<>`|*_[]\\{}~$" else one for one in line)
    return Markdown(f"<code>{entities}</code>")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> Markdown:
    """A Markdown table; cells are escaped, except those of type `Markdown`."""
    rule = "|".join("---:" if side == "r" else "---" for side in align or "l" * len(header))
    lines = [" | ".join(escape(cell) for cell in row) for row in (header, *rows)]
    return Markdown("\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {x} |" for x in lines[1:])]))


def _as_entity(found: re.Match[str]) -> str:
    mark = next(group for group in found.groups()[1:] if group)
    return f"{found[1]}&#{ord(mark)};"
