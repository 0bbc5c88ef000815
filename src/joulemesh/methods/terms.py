"""What may be equal for all methods of a comparison."""

from __future__ import annotations

__all__ = ["EQUAL", "equal_terms"]

from joulemesh.errors import ScenarioError

EQUAL = ("iterations", "batteries", "time", "budget")
_ALIASES = {"energy": "batteries"}


def equal_terms(equal: str) -> str:
    """What is equal for all methods, by its own name.

    >>> equal_terms("energy"), equal_terms("budget")
    ('batteries', 'budget')
    """
    named = _ALIASES.get(equal, equal)
    if named not in EQUAL:
        raise ScenarioError(f"equal = {equal!r} is unknown: use one of {', '.join(EQUAL)}")
    return named
