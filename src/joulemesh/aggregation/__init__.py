"""How parameters travel. In: a graph and the price of its links. Out: a Route (who sends how many
bits to whom, in which step) and a mixing matrix.
May not know: budgets and rounds (``planning``), what is learned (``data``, ``models``).
"""

from __future__ import annotations

from joulemesh.aggregation.choose import Choice, choose
from joulemesh.aggregation.contract import check
from joulemesh.aggregation.execute import execute
from joulemesh.aggregation.peer import Peer, RoutePeer
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import (
    Case,
    Conditions,
    Fit,
    Scheme,
    SchemeKind,
)
from joulemesh.aggregation.schemes.base import ExactScheme, SchemeBase
from joulemesh.aggregation.schemes.iterated import IteratedScheme
from joulemesh.aggregation.subgraph import Subgraph

__all__ = [
    "Case",
    "Choice",
    "Conditions",
    "ExactScheme",
    "Fit",
    "IteratedScheme",
    "Peer",
    "Route",
    "RoutePeer",
    "Scheme",
    "SchemeBase",
    "SchemeKind",
    "Subgraph",
    "check",
    "choose",
    "execute",
]
