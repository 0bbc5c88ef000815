"""In: a scenario and a method's name, for instance "fixed:3". Out: a Contender: what the engine
plays, and a ledger of its cost, on equal batteries, iterations or time.
May not know: how runs are compared or drawn (``study``, ``views``), any bound (``theory``).
"""

from __future__ import annotations

from joulemesh.base.citation import Citation
from joulemesh.ledger import Ledger
from joulemesh.methods.base import Contender, Parameter, choice, number, whole
from joulemesh.methods.registry import (
    Method,
    build,
    citations,
    libraries,
    lookup,
    names,
    register,
    split,
)
from joulemesh.methods.setting import EQUAL, Setting

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
