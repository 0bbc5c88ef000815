"""What a user reads when a command fails: one line; the traceback or JSON if it is asked for."""

from __future__ import annotations

import json
import sys
import traceback

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.optional import explained
from joulemesh.base.own_code import place_in
from joulemesh.base.printable import say

__all__ = ["ask_for_tracebacks", "tell"]

_MOST_CHARACTERS = 400
_asked = False


def ask_for_tracebacks(wanted: bool) -> None:
    """Say whether failures are to be shown with their traceback."""
    global _asked
    _asked = wanted


def tell(error: Exception) -> bool:
    """Print one line on standard error about an error that the user can correct, and its notes.

    That is a refusal of Joulemesh, and anything that passed through the user's own code. Where the
    command was to print its result as JSON, standard output gets the refusal as data.

    Returns:
        False for any other error, a defect of Joulemesh: nothing is printed.
    """
    line = _line(error)
    if line is None:
        return False
    if _asked:
        traceback.print_exception(error)
    say(f"error: {line}", err=True)
    if isinstance(error, JoulemeshError) and "--json" in sys.argv:
        print(json.dumps({"error": error.data}))
    for note in getattr(error, "__notes__", ()):
        if isinstance(error, JoulemeshError) and "\n" not in note:  # JAX adds its own, of several
            say(f"note: {note}", err=True)
    return True


def _line(error: Exception) -> str | None:
    place = place_in(error)
    if isinstance(error := explained(error), JoulemeshError):
        return str(error) if place is None else f"{place}: {error}"
    if place is None:
        return None
    said = error.msg if isinstance(error, SyntaxError) else error  # which else repeats the place
    words = " ".join(f"{type(error).__name__}: {said}".split())
    words = words if len(words) <= _MOST_CHARACTERS else words[: _MOST_CHARACTERS - 1] + "…"
    return f"{place}: {words} (`joulemesh --traceback …` shows all)"
