"""Texts that others chose (names, paths, cells of tables), made safe to print on a terminal."""

from __future__ import annotations

import sys
import unicodedata

# Control codes, marks that turn the direction of writing, lone surrogates, and line separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Joiners and soft hyphens belong to words and emoji.
_HARMLESS = "\u00ad\u200c\u200d"


def printable(text: str, *, lines: bool = False) -> str:
    r"""Replace whatever would move the cursor, colour, hide or reorder by its escape."""
    kept = _HARMLESS + ("\n\t" if lines else "")
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) in _UNSAFE and letter not in kept
        else letter
        for letter in text
    )


def say(text: str, *, err: bool = False, lines: bool = False) -> None:
    r"""Print a message for the user, whatever texts of others it holds."""
    stream = sys.stderr if err else sys.stdout
    print(printable(text, lines=lines), file=stream, flush=True)
