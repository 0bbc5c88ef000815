"""In: a scenario and a method's name, for instance "fixed:3". Out: a Contender: what the engine
plays, and a ledger of its cost, on equal batteries, iterations or time.
May not know: how runs are compared or drawn (``study``, ``views``), any bound (``theory``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joulemesh.base.registry import Citation
from joulemesh.ledger import Ledger
from joulemesh.methods.base import (
    Contender,
    Method,
    Parameter,
    choice,
    citations,
    lookup,
    names,
    number,
    register,
    split,
    whole,
)

if TYPE_CHECKING:
    from joulemesh.methods.setting import EQUAL, Setting, build, libraries

__all__ = [
    "EQUAL",
    "Citation",
    "Contender",
    "Ledger",
    "Method",
    "Parameter",
    "Setting",
    "build",
    "choice",
    "citations",
    "libraries",
    "lookup",
    "names",
    "number",
    "register",
    "split",
    "whole",
]


def __getattr__(name: str) -> Any:
    """What makes methods ready needs the planner; the file of a method does not."""
    if name not in ("EQUAL", "Setting", "build", "libraries"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from joulemesh.methods import setting

    return getattr(setting, name)
