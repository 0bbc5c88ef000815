"""What pages show of a command's output is written anew from what it prints today.

python -m tools.shown              all pages
python -m tools.shown tutorial     only the pages with these names
"""

from __future__ import annotations

__all__ = ["renewed", "rewrite"]

import difflib
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tools.reading import PAGES, ROOT, Block, Reader, agrees, at_home, blocks, commands, is_typed


def renewed(shown: str, printed: str, *, learned: bool = False) -> str:
    """What a page should show: what is printed today, with the page's own omissions.

    A line that is shown is renewed from the printed line that is most like it; a page that shows
    all of what is printed shows all of it again.

    >>> print(renewed("a 1\\n…\\nc … 3\\n", "a 2\\nb\\nc 5 4\\n"), end="")
    a 2
    …
    c 5 4
    """
    if not shown.strip() or (agrees(shown, printed, learned=learned) and not learned):
        return shown
    if shown.startswith("error: "):
        return textwrap.fill(printed.strip(), 76, break_on_hyphens=False) + "\n"
    lines = [line.rstrip() for line in printed.rstrip().split("\n")]
    if "…" not in shown:
        return "\n".join(lines) + "\n"
    kept, start = [], 0
    for line in shown.rstrip().split("\n"):
        if line.strip() == "…":
            kept.append(line)
            continue
        nearest = _most_alike(line, lines, start)
        if nearest is None:
            kept.append(line)
            continue
        same = "…" in line and agrees(line, lines[nearest], learned=learned)
        kept.append(line if same else lines[nearest])
        start = nearest + 1
    return "\n".join(kept) + "\n"


def _most_alike(line: str, lines: list[str], start: int) -> int | None:
    def alike(other: str) -> float:
        one, two = (re.sub(r"[\d.,…]+", "0", " ".join(text.split())) for text in (line, other))
        return difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()

    best = max(range(start, len(lines)), key=lambda k: alike(lines[k]), default=None)
    return best if best is not None and alike(lines[best]) > 0.6 else None


def rewrite(page: Path, cache: Path) -> bool:
    """Write into a page what its commands print today; returns whether it changed."""
    text = before = page.read_text("utf-8")
    printed: list[tuple[str, bool]] = []

    def keep(shown: str, now: str, where: str, learned: bool) -> None:
        printed.append((now, learned))

    with tempfile.TemporaryDirectory() as folder, at_home(Path(folder), cache):
        reader = Reader(page, keep)
        found = blocks(text)
        changes: list[tuple[Block, str]] = []
        for block in found:
            printed.clear()
            reader.follow(block)
            changes += _changes(block, [*printed])
    for block, new in reversed(changes):
        start, end = block.span
        text = text[:start] + textwrap.indent(new, block.indent) + text[end:]
    page.write_text(text, "utf-8")
    return text != before


def _changes(block: Block, printed: list[tuple[str, bool]]) -> Iterator[tuple[Block, str]]:
    if not printed:  # nothing in it can be tried here, or its package is not installed
        return
    if block.kind == "python" and block.shown is not None:
        (now, learned), shown = printed[0], block.shown
        yield shown, renewed(shown.text, now, learned=learned)
    elif block.kind == "console" and not block.title:
        done = iter(printed)
        new = ""
        for typed, line, on_page in commands(block.text):
            new += f"$ {typed}\n"
            if is_typed(line):
                now, learned = next(done)
                on_page = renewed(on_page, now, learned=learned)
            new += on_page
        yield block, new


def main(names: list[str]) -> None:
    """Rewrite the pages, or those with these names."""
    with tempfile.TemporaryDirectory() as cache:
        for page in PAGES:
            if not names or page.stem in names:
                changed = rewrite(page, Path(cache))
                print(
                    f"{page.relative_to(ROOT)}: {'written' if changed else 'as it was'}", flush=True
                )


if __name__ == "__main__":
    main(sys.argv[1:])
