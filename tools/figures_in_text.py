"""Figures in README.md and docs that a file of results holds: written from it, and checked.

    python -m tools.figures_in_text            write every figure again
    python -m tools.figures_in_text --check    only say which would change

On a page of docs a figure is followed by a comment that names it, as in `17.7<!--= peers... -->`;
`tools/records.py` says what names there are. It keeps the number of decimals that it is shown with.
A number with a unit that no file holds, because it is a setting or arithmetic, is followed by
`<!-- given -->`; `unfounded` finds those that are followed by neither. A table between
`<!--# name() -->` and `<!-- end -->` is written as a whole. The README has no comments: what stands
behind its figures is in `tools/readme_figures.py`.
"""

from __future__ import annotations

__all__ = ["BESIDE", "OF_RESULTS", "PAGES", "figures", "rewritten", "unfounded"]

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import readme_figures
from tools.records import records
from tools.reproduction_numbers import NAMES

ROOT = Path(__file__).resolve().parents[1]
# Pages that a program writes are tested against their records as a whole.
WRITTEN = ("mutation.md", "benchmarks/", "reproduction/README.md", "reproduction/claims.md",
           "comparison/tables.md")  # fmt: skip
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not str(page.relative_to(ROOT / "docs")).startswith(WRITTEN)
    ),
]
# Pages that speak of results; how-tos and explanations are full of settings and examples.
OF_RESULTS = [
    page
    for page in PAGES
    if page.parent in (ROOT, ROOT / "docs") or page.parent.name in ("comparison", "reproduction")
]

NUMBER = r"(?<![\w/.])(?<!− )[+−-]?\d[\d,]*(?:\.\d+)?"  # but not the 1 of N − 1
FIGURE = re.compile(rf"({NUMBER}(?:\s±\s{NUMBER})?)<!--=\s*(.*?)\s*-->", re.DOTALL)
UNITS = (
    "times|fold|points?|per cent|device-steps?/s|[kMGT]?FLOP(?:/s)?|[kMGT]i?B(?:/s)?|bytes|"
    "[µnm]?s|seconds?|min|minutes?|h|hours?|[kMmµ]?J|[kM]?Wh|M"
)
# A number with a unit or an interval, or alone in a cell of a table.
MEASURED = re.compile(
    rf"(?:{NUMBER}\s±\s)?{NUMBER}(?:[\s-](?:{UNITS})\b|\s?%)|{NUMBER}\s±\s{NUMBER}"
    rf"|(?<=\|\s){NUMBER}(?=\s\|)"
)
ACCOUNTED = re.compile(
    rf"{NUMBER}(?:\s±\s{NUMBER})?(?:<!--=.*?-->|[^\d<]{{0,20}}<!-- given -->)", re.DOTALL
)
TABLE = re.compile(r"<!--#\s*(.*?)\s*-->(.*?)<!-- end -->", re.DOTALL)
# Figures that are named beside the page, by phrases, and phrases whose numbers are given.
BESIDE = {ROOT / "README.md": (readme_figures.FIGURES, readme_figures.GIVEN)}
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`]*`", re.MULTILINE | re.DOTALL)


def as_shown(value: Any, shown: str) -> str:
    """A value in the form of the figure that is shown.

    >>> as_shown(5894.52, "4,767"), as_shown(-0.04, "+0.1"), as_shown((1.96, 0.2), "2.0 ± 0.3")
    ('5,895', '0.0', '2.0 ± 0.2')
    """
    parts = re.split(r"\s±\s", shown)
    values = value if isinstance(value, tuple) else (value,)
    if len(parts) != len(values):
        raise ValueError(f"{shown!r} is shown for {value}")
    return " ± ".join(_number(v, part) for v, part in zip(values, parts, strict=True))


def _number(value: float, shown: str) -> str:
    decimals = len(shown.partition(".")[2])
    text = f"{value:+,.{decimals}f}" if shown.startswith("+") else f"{value:,.{decimals}f}"
    if not float(text.replace(",", "")):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def phrase(text: str, words: str, page: str) -> re.Match[str]:
    """Where a phrase stands in a text, once; a group for each `{}`, which is a number."""
    parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in words.split("{}")]
    found = [*re.finditer(rf"({NUMBER})".join(parts), text)]
    if len(found) != 1:
        raise ValueError(f"{page}: {words!r} stands there {len(found)} times, not once")
    return found[0]


def named(page: Path) -> list[tuple[int, int, str]]:
    """(start, end, expression) of every figure and table of a page, in order."""
    text = page.read_text("utf-8")
    known = [(*found.span(1), found[2]) for found in FIGURE.finditer(text)]
    known += [(*found.span(2), found[1]) for found in TABLE.finditer(text)]
    for words, *expressions in BESIDE.get(page, ((), ()))[0]:
        found = phrase(text, words, page.name)
        spans = [found.span(k + 1) for k in range(len(expressions))]
        known += [(*span, one) for span, one in zip(spans, expressions, strict=True)]
    return sorted(known)


def figures(page: Path) -> Iterator[tuple[int, str, str]]:
    """Line, figure or table as shown and as its record has it, for all of a page."""
    text = page.read_text("utf-8")
    names = {"__builtins__": {}, **records(), **NAMES}
    for start, end, expression in named(page):
        line, shown = text.count("\n", 0, start) + 1, text[start:end]
        try:
            value = eval(expression, names)  # from our own pages
            is_table = text[:start].endswith("-->")
            yield line, shown, f"\n\n{value}\n\n" if is_table else as_shown(value, shown)
        except Exception as error:
            raise ValueError(f"{page.name}, line {line}: {expression}: {error}") from error


def rewritten(page: Path) -> str:
    """The page with all figures and tables as their records have them."""
    text = page.read_text("utf-8")
    wanted = [new for _, _, new in figures(page)]
    for (start, end, _), new in reversed([*zip(named(page), wanted, strict=True)]):
        text = text[:start] + new + text[end:]
    return text


def unfounded(page: Path) -> list[str]:
    """Numbers with a unit that neither a file of results nor the word "given" stands behind."""
    text = page.read_text("utf-8")
    told, given = BESIDE.get(page, ((), ()))
    known = [phrase(text, words, page.name).span() for words in (*(one[0] for one in told), *given)]

    def blank(part: str) -> str:
        return re.sub(r"[^\n]", " ", part)

    for start, end in known:
        text = text[:start] + blank(text[start:end]) + text[end:]
    for pattern in (CODE, TABLE, ACCOUNTED):
        text = pattern.sub(lambda found: blank(found[0]), text)
    return [
        f"{page.name}, line {text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for found in MEASURED.finditer(text)
    ]


def main(check: bool) -> int:
    """Rewrite the pages, or say what would change; returns the exit code."""
    changes = 0
    for page in PAGES:
        for line, shown, new in figures(page):
            if shown.split() != new.split():
                changes += 1
                print(f"{page.relative_to(ROOT)}:{line}: {shown.strip()} -> {new.strip()}")
        if not check:
            page.write_text(rewritten(page), "utf-8")
    return int(check and changes > 0)


if __name__ == "__main__":
    try:
        sys.exit(main("--check" in sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")
