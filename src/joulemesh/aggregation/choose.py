"""Theorem 3: which scheme, and why.

The channel is known and constant within an exchange: the minimum spanning tree. Else a ring, when
the graph contains one. Else gossip.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulemesh.aggregation.ring import RingSearch, find_ring
from joulemesh.aggregation.route import IntArray
from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.errors import InfeasibleError

__all__ = ["Choice", "choose"]


@dataclass(frozen=True)
class Choice:
    """A scheme by name, the reason for it, and the ring if it needs one."""

    scheme: str
    reason: str
    ring: IntArray | None = None


def choose(graph: Subgraph, *, wanted: str, channel_known: bool, limit: int) -> Choice:
    """Pick a scheme, or check that the wanted one can be carried by the graph.

    Args:
        graph: the devices that take part and their links.
        wanted: ``"auto"`` (Theorem 3) or a scheme's name.
        channel_known: does the planner see the gains?
        limit: bound on the search for a ring.

    Raises:
        InfeasibleError: a ring was asked for, and none exists or none was found within the limit.
    """
    if wanted in ("ring", "ring-chunked"):
        search = find_ring(graph.edges, graph.devices, hint=graph.ring, limit=limit)
        if search.order is None:
            raise InfeasibleError(_no_ring(wanted, search), constraint="topology")
        return Choice(wanted, f"asked for; {search.reason}", search.order)
    if wanted != "auto":
        return Choice(wanted, "asked for")
    if channel_known:
        return Choice(
            "tree",
            "the channel is known and constant within an exchange, so that the minimum spanning "
            "tree costs the least energy (Theorem 3, case 1)",
        )
    search = find_ring(graph.edges, graph.devices, hint=graph.ring, limit=limit)
    if search.order is not None:
        return Choice(
            "ring",
            f"the channel is unknown, so that links cannot be chosen by their energy, and the "
            f"graph contains a ring: {search.reason} (Theorem 3, case 2)",
            search.order,
        )
    return Choice(
        "gossip",
        f"the channel is unknown and the graph contains no ring: {search.reason} "
        "(Theorem 3, case 3)",
    )


def _no_ring(wanted: str, search: RingSearch) -> str:
    why = (
        search.reason
        if search.exhausted
        else f"{search.reason}, which does not prove that none exists"
    )
    remedy = 'plan.aggregation = "tree" or "gossip", or add links'
    more = "" if search.exhausted else ", or raise plan.ring_search_limit"
    return (
        f'plan.aggregation = "{wanted}" needs a ring through all devices: {why}; use {remedy}{more}'
    )
