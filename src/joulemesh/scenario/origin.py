"""Where a field's value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ASSUMED", "GIVEN", "Origin"]

Kind = Literal["given", "preset", "table", "measured", "profile", "assumed"]

# How each origin is written, in the order in which text is recognised.
_WORDS: dict[Kind, str] = {
    "given": "given",
    "preset": "preset {}",
    "profile": "from profile {}",
    "table": "from {}",
    "measured": "measured, {}",
    "assumed": "assumed",
}


@dataclass(frozen=True)
class Origin:
    """Where a field's value comes from.

    Attributes:
        kind: ``"given"`` by the user; taken from a ``"preset"``, from the device ``"table"`` or
            from a ``"profile"``; ``"measured"``: from a table that says how; or ``"assumed"``:
            nobody gave it, so it has its default.
        source: the file, the option, the preset or the profile; empty if it has no name.

    >>> print(Origin("profile", "esp32"), "|", Origin("given", "fleet.toml"), "|", ASSUMED)
    from profile esp32 | given in fleet.toml | assumed
    """

    kind: Kind
    source: str = ""

    def __str__(self) -> str:
        """In a few words."""
        if self.kind == "given" and self.source:
            way = "by" if self.source.startswith("--") else "in"
            return f"given {way} {self.source}"
        return _WORDS[self.kind].format(self.source)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """The origin that a text names.

        >>> all(Origin.parse(str(one)) == one for one in (GIVEN, Origin("preset", "paper")))
        True
        >>> Origin.parse("given by --set")
        Origin(kind='given', source='--set')
        """
        for kind, words in _WORDS.items():
            start = words.removesuffix("{}")
            if text.startswith(start):
                source = text.removeprefix(start)
                if kind == "given":
                    source = source.removeprefix(" in ").removeprefix(" by ")
                return cls(kind, source)
        return ASSUMED


GIVEN = Origin("given")
ASSUMED = Origin("assumed")
