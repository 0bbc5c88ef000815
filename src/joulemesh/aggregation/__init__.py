"""How parameters travel. In: a graph and the price of its links. Out: a Route (who sends how many
bits to whom, in which step) and a mixing matrix.
May not know: budgets and rounds (``planning``), what is learned (``data``, ``models``).
"""

from __future__ import annotations

from joulemesh.aggregation.contract import check, execute
from joulemesh.aggregation.gossip import IteratedScheme
from joulemesh.aggregation.peer import Peer, RoutePeer
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import (
    Case,
    Choice,
    Conditions,
    ExactScheme,
    Fit,
    Scheme,
    SchemeBase,
    SchemeKind,
    choose,
)

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
