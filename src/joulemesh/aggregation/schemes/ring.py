"""The ring, and the ring in chunks (Ring-AllReduce): routes, mixing and peers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulemesh.aggregation.peer import RoutePeer, Vector
from joulemesh.aggregation.ring import chunked_route, find_ring, ring_route
from joulemesh.aggregation.route import IntArray, Route, Subgraph
from joulemesh.aggregation.scheme import Case, Conditions, ExactScheme, Fit, SchemeKind
from joulemesh.aggregation.tree import spanning_tree
from joulemesh.base.citation import PAPER, Citation
from joulemesh.base.errors import Edit
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts

__all__ = ["Ring", "RingChunked", "RingChunkedPeer", "RingPeer", "fit_ring", "order_of"]


@dataclass(frozen=True, eq=False)
class Ring(ExactScheme):
    """Whole vectors travel around a ring.

    Attributes:
        order: int [A]: the devices in ring order, in the subgraph's numbers.
    """

    order: IntArray

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Around the ring, whatever the links cost."""
        return self.graph.in_whole(ring_route(self.order, self.graph.edges, self.bits))

    def peer(self, device: int, route: Route) -> RingPeer:
        """A device of the ring."""
        return RingPeer(device, route)


class RingPeer(RoutePeer):
    """Passes on what came, and adds everything up in the end, in the order of the devices.

    Partial sums, which are of the same size, would be added up from another device on by each, and
    the devices' means would differ in their last bits.
    """

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        before = dict(zip(route.receiver.tolist(), route.sender.tolist(), strict=True))
        self._origin: list[int] = []  # of what comes, by step
        for _ in range(self.steps):
            self._origin.append(before[self._origin[-1] if self._origin else device])

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        super().start(own)
        self._vectors = {self.device: own}

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Keep what came, which is sent next."""
        (self.held,) = arrived.values()
        self._vectors[self._origin[step]] = self.held

    def instead(self, step: int, sender: int) -> Vector:
        """This device's own vector, which it passes on in the place of the lost one."""
        return self._vectors[self.device]

    def result(self) -> Vector:
        """The mean of all devices."""
        first, *others = [self._vectors[device] for device in sorted(self._vectors)]
        return sum(others, start=first) / len(self._vectors)


def fit_ring(graph: Subgraph, options: PlanOptions) -> Fit:
    """Look for a ring through all devices, within ``plan.ring_search_limit`` steps."""
    search = find_ring(graph.edges, graph.devices, hint=graph.ring, limit=options.ring_search_limit)
    if search.order is not None:
        return Fit(reason=search.reason, order=search.order)
    doubt = "" if search.exhausted else ", which does not prove that none exists"
    more = "" if search.exhausted else ", or a larger plan.ring_search_limit find one"
    return Fit(
        possible=False,
        reason=search.reason,
        device=search.device,
        refusal=f"needs a ring through all devices: {search.reason}{doubt} (more links may make "
        f"one{more})",
        remedies=((Edit("plan.aggregation", "tree"),),),  # every connected graph has one
    )


def order_of(fit: Fit) -> IntArray:
    """The ring that `fit_ring` found."""
    assert fit.order is not None
    return fit.order


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Ring:
    return Ring(RING, reason, conditions.graph, conditions.bits, order_of(fit))


RING = SCHEMES.register(
    SchemeKind(
        "ring",
        "whole vectors travel around a ring of all devices",
        _ready,
        words="around a ring",
        fit=fit_ring,
        case=Case(
            2,
            "the channel is unknown, so that links cannot be chosen by their energy, and the "
            "graph contains a ring: {fit} (Theorem 3, case 2)",
        ),
        citation=PAPER,
    )
)


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
    """Adds its own to a chunk and passes it on; then passes on chunks that are complete."""

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


def _ready_in_chunks(conditions: Conditions, fit: Fit, reason: str) -> RingChunked:
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
        _ready_in_chunks,
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
