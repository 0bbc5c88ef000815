"""An extension of griffe: a docstring's doctest is shown as an example.

Our docstrings end with `>>>` lines and no heading, as short Python docstrings do; the reference
would take those for quotations.
"""

from __future__ import annotations

__all__ = ["Doctests", "with_heading"]

import re
import textwrap
from typing import Any

import griffe


def with_heading(text: str) -> str:
    """The docstring with its doctests under the heading ``Examples``.

    >>> with_heading("Add.\\n\\n>>> 1 + 1\\n2")
    'Add.\\n\\nExamples:\\n    >>> 1 + 1\\n    2'
    """
    found = re.search(r"^>>> ", text, re.MULTILINE)
    if found is None or "Examples:" in text:
        return text
    return text[: found.start()] + "Examples:\n" + textwrap.indent(text[found.start() :], "    ")


class Doctests(griffe.Extension):
    """Puts the heading into every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change an object's docstring, once all is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = with_heading(obj.docstring.value)
