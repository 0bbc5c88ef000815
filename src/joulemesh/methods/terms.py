"""What may be equal for all methods of a comparison."""

from __future__ import annotations

__all__ = ["EQUAL", "equal_terms"]

from joulemesh.errors import ScenarioError
from joulemesh.scenario import Scenario

EQUAL = ("iterations", "batteries", "time", "budget")
_ALIASES = {"energy": "batteries"}


def equal_terms(equal: str | None, *scenarios: Scenario) -> str:
    """What is equal for all methods, by its own name.

    Unless it is given, all that the scenarios bound: batteries, and the total time if one has it.

    >>> equal_terms("energy"), equal_terms("budget")
    ('batteries', 'budget')
    >>> equal_terms(None, Scenario.preset("default")), equal_terms(None, Scenario.preset("paper"))
    ('budget', 'batteries')
    """
    if equal is None:
        timed = any(scenario.budget.total_s is not None for scenario in scenarios)
        return "budget" if timed else "batteries"
    named = _ALIASES.get(equal, equal)
    if named not in EQUAL:
        raise ScenarioError(f"equal = {equal!r} is unknown: use one of {', '.join(EQUAL)}")
    return named
