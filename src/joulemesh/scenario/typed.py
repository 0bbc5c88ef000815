"""A field's value as somebody types it: on the command line, or into a form."""

from __future__ import annotations

__all__ = ["typed_value"]

import tomllib
from typing import Any

from joulemesh.errors import ScenarioError


def typed_value(text: str, where: str = "--set") -> Any:
    """A TOML value, or a bare word: ``100 Wh``, ``[6 J, 30 J]``, ``[esp32, laptop]``.

    Args:
        text: what was typed.
        where: what it was typed into, to be named in a refusal.

    >>> typed_value("[6 J, 30]"), typed_value("true"), typed_value("esp32"), typed_value("0.5")
    (['6 J', 30], True, 'esp32', 0.5)
    """
    text = text.strip()
    if "\n" in text or "\r" in text:  # it would be several statements of TOML
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        listed = text.startswith("[") and text.endswith("]") and "[" not in text[1:]
        return [typed_value(item, where) for item in text[1:-1].split(",")] if listed else text
    except ValueError:  # more digits than Python converts
        raise ScenarioError(f"{where}: {text[:20]}… has {len(text)} digits; write 1e9") from None
