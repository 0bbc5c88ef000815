"""Ring-AllReduce proper (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009).

Vectors are cut into N chunks; N−1 steps of reduce-scatter and N−1 of all-gather give every device
the mean for N/2 times less than the ring of whole vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulemesh.aggregation.peer import RoutePeer, Vector
from joulemesh.aggregation.ring import chunked_route
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import Conditions, Fit, SchemeKind
from joulemesh.aggregation.schemes.base import ExactScheme
from joulemesh.aggregation.schemes.ring import fit_ring, order_of
from joulemesh.aggregation.tree import spanning_tree
from joulemesh.citation import Citation
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = ["RingChunked", "RingChunkedPeer"]


@dataclass(frozen=True, eq=False)
class RingChunked(ExactScheme):
    """Chunks of the vectors travel around a ring, twice.

    Attributes:
        order: int [A]: the devices in ring order, in the subgraph's numbers.
    """

    order: IntArray

    def parts(self, route: Route) -> int:
        """As many chunks as devices."""
        return self.graph.devices

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Around the ring, whatever the links cost."""
        return self.graph.in_whole(chunked_route(self.order, self.graph.edges, self.bits))

    def peer(self, device: int, route: Route) -> RingChunkedPeer:
        """A device of the ring."""
        return RingChunkedPeer(device, route)


class RingChunkedPeer(RoutePeer):
    """Adds its own to a chunk and passes it on; then passes on chunks that are complete.

    Args:
        device: its number in the whole graph.
        route: around a ring, in N−1 steps of reduce-scatter and N−1 of all-gather.
    """

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        order = route.sender.tolist()
        self._count, self._position = len(order), order.index(device)

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P], of which some chunks may be empty."""
        super().start(own)
        self._chunks = np.array_split(own, self._count)

    def payload(self, step: int) -> Vector:
        """The chunk that this device sends in a step."""
        return self._chunks[self._chunk(self._position, step)]

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Add to the chunk that came, or replace it if it is complete."""
        (payload,) = arrived.values()
        chunk = self._chunk(self._position - 1, step)
        gathered = step >= self._count - 1
        self._chunks[chunk] = payload if gathered else self._chunks[chunk] + payload

    def instead(self, step: int, sender: int) -> Vector:
        """The device's own chunk for each vector in a lost sum; or the sum as it left this device.

        What it lacks to a sum of all N is made up by its mean.
        """
        count, chunk = self._count, self._chunk(self._position - 1, step)
        if step < count - 1:
            return (step + 1) * self._chunks[chunk]
        came = (self._position - 1 - chunk) % count  # the step of reduce-scatter in which it did
        added = came + 2 if came < count - 1 else 1
        return self._chunks[chunk] * (count / added)

    def result(self) -> Vector:
        """All chunks are complete sums."""
        return np.concatenate(self._chunks) / self._count

    def _chunk(self, position: int, step: int) -> int:
        """Which chunk the device at a position of the ring sends in a step.

        It begins with its own; the last that it completes is the first that it spreads.
        """
        count = self._count
        turn = step if step < count - 1 else step - count
        return (position - turn) % count


def _ready(conditions: Conditions, fit: Fit, reason: str) -> RingChunked:
    return RingChunked(RING_CHUNKED, reason, conditions.graph, conditions.bits, order_of(fit))


def _least(conditions: Conditions) -> tuple[float, float]:
    """Joules and seconds of an exchange at the least, whichever ring is found.

    Every device sends over one of its links. A ring less one link is a spanning tree, so that its
    slowest link is not faster than that of the tree whose slowest link is the fastest.
    """
    graph = conditions.graph
    count = graph.devices
    own = graph.own(conditions.costs).for_messages(conditions.bits / count)
    cheapest = np.full(count, np.inf)
    forward_j, backward_j = own.both_ends_j()
    np.minimum.at(cheapest, graph.edges[:, 0], forward_j)
    np.minimum.at(cheapest, graph.edges[:, 1], backward_j)
    faster = np.minimum(own.forward_s, own.backward_s)
    slowest = faster[spanning_tree(graph.edges, faster, count)].max()
    bits = conditions.bits * 2 * (count - 1) / count
    return float(bits * cheapest.sum()), float(bits * slowest)


RING_CHUNKED = SCHEMES.register(
    SchemeKind(
        "ring-chunked",
        "Ring-AllReduce: chunks of the vectors are summed and spread around a ring",
        _ready,
        words="around a ring in chunks",
        fit=fit_ring,
        advised=True,
        least=_least,
        citation=Citation(
            "Patarasuk, Yuan",
            "Bandwidth Optimal All-Reduce Algorithms for Clusters of Workstations",
            2009,
            "Journal of Parallel and Distributed Computing 69(2):117-124",
            doi="10.1016/j.jpdc.2008.09.002",
            names="Patarasuk, Pitch and Yuan, Xin",
        ),
    )
)
