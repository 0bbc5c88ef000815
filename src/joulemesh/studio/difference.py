"""Two plans side by side: what was asked differently, and what comes of it."""

from __future__ import annotations

__all__ = ["plan_difference"]

from collections.abc import Callable, Mapping
from typing import Any

from joulemesh.units import duration, energy

_COUNT: Callable[[float], str] = lambda value: f"{value:,.0f}"  # noqa: E731
_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "iterations": ("iterations", _COUNT),
    "rounds": ("rounds", _COUNT),
    "spent_j": ("energy spent", energy),
    "held_j": ("energy held", energy),
    "time_s": ("time in all", duration),
    "longest_s": ("longest iteration", duration),
    "exchange_s": ("exchange", duration),
}


def plan_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between two documents.

    Args:
        before: the one that was kept (`document`).
        now: the other.

    Returns:
        ``fields`` (those that differ, each with both values), ``figures`` (name, both as text, and
        by how many per cent the second is larger) and ``bound`` (how many devices each limit binds,
        before and now).

    >>> from joulemesh.scenario import Scenario
    >>> from joulemesh.studio.document import document
    >>> one = Scenario.preset("adaptive")
    >>> two = one.override({"budget.deadline_s": 0.05})
    >>> found = plan_difference(document(one), document(two))
    >>> found["fields"]
    [{'field': 'budget.deadline_s', 'before': '0.04', 'now': '0.05'}]
    >>> [row["name"] for row in found["figures"] if row["change"]][:2]
    ['rounds', 'energy spent']
    """
    old, new = before["plan"], now["plan"]
    fields = [
        {"field": name, "before": _text(before["fields"][name]), "now": _text(field)}
        for name, field in now["fields"].items()
        if _text(before["fields"][name]) != _text(field)
    ]
    figures = []
    if old is not None and new is not None:
        figures = [
            {"name": "scheme", "before": old["scheme"], "now": new["scheme"], "change": None},
            *(_row(name, say, old[key], new[key]) for key, (name, say) in _FIGURES.items()),
        ]
    kinds = dict.fromkeys([*(old or {}).get("bound", ()), *(new or {}).get("bound", ())])
    bound = {
        kind: [(one or {}).get("bound", {}).get(kind, 0) for one in (old, new)] for kind in kinds
    }
    return {"fields": fields, "figures": figures, "bound": bound}


def _text(field: Mapping[str, Any]) -> str:
    many = field.get("many")
    return f"{many:,} values" if many else str(field["text"])


def _row(name: str, say: Callable[[float], str], old: float, new: float) -> dict[str, Any]:
    change = 100 * (new - old) / old if old else 0.0
    return {"name": name, "before": say(old), "now": say(new), "change": round(change, 2)}
