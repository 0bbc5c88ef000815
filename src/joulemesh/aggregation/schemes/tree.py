"""The minimum spanning tree (Algorithm 2; case 1 of Theorem 3): sums go up, the mean comes down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from joulemesh.aggregation.medium import Medium
from joulemesh.aggregation.peer import RoutePeer, Vector
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import (
    Case,
    Conditions,
    Fit,
    RoutesToTry,
    SchemeKind,
)
from joulemesh.aggregation.schemes.base import ExactScheme
from joulemesh.aggregation.tree import branch_sizes, shortest_path_tree, spanning_tree, tree_route
from joulemesh.bibliography import PAPER
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = ["Tree", "TreePeer"]


@dataclass(frozen=True)
class Tree(ExactScheme):
    """Reduce along the minimum spanning tree to its best root, and broadcast back.

    Attributes:
        medium: of the subgraph's devices; it decides the root.
    """

    medium: Medium

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Along the minimum spanning tree by these costs."""
        return self._along(self._links(costs), self.whole(costs))

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The tree of now, that of the forecast and a quick one, if the planner sees the costs.

        Otherwise the tree of the forecast alone.
        """
        links, graph = self._links(forecast), self.graph

        def to_try(seen: LinkCosts | None, iteration: int) -> Iterator[Route]:
            # The root, too, is chosen by the gains that the planner may see.
            own = self.whole(forecast if seen is None else seen)
            if seen is not None:
                yield self.route(seen, iteration)
            yield self._along(links, own)
            if seen is not None:  # it trades energy for time where a fade makes the others late
                yield self._along(shortest_path_tree(graph.edges, own, graph.devices), own)

        return to_try

    def _links(self, costs: LinkCosts) -> IntArray:
        """The minimum spanning tree, as positions in the subgraph's edge list."""
        graph = self.graph
        return spanning_tree(graph.edges, self.whole(costs).weight(), graph.devices)

    def _along(self, links: IntArray, own: LinkCosts) -> Route:
        """The tree over some links of the subgraph, with its best root."""
        graph = self.graph
        route = tree_route(graph.edges, links, own, graph.devices, self.bits, self.medium)
        return graph.in_whole(route)

    def peer(self, device: int, route: Route) -> TreePeer:
        """A device of the tree."""
        return TreePeer(device, route)


class TreePeer(RoutePeer):
    """Adds up what its children send, passes the sum on, and takes the mean that comes back.

    Args:
        device: its number in the whole graph.
        route: to a root and back, each in half of the steps.
    """

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        self._up = self.steps // 2
        self._root = device == route.root
        self._count = len(np.unique(route.edges))
        self._route = route

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        super().start(own)
        self._own = own

    def instead(self, step: int, sender: int) -> Vector:
        """On the way up the device's own, once for each device of the sender's branch.

        On the way down the mean of the device's own branch, as it gathered it.
        """
        sizes = branch_sizes(self._route)
        if step < self._up:
            return sizes[sender] * self._own
        return self.held / sizes[self.device]

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Add sums on their way up; the mean replaces what is held."""
        for payload in arrived.values():
            self.held = self.held + payload if step < self._up else payload
        if self._root and step == self._up - 1:
            self.held = self.held / self._count


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Tree:
    return Tree(TREE, reason, conditions.graph, conditions.bits, conditions.own_medium)


TREE = SCHEMES.register(
    SchemeKind(
        "tree",
        "the minimum spanning tree: sums go up to a root, the mean comes back",
        _ready,
        words="along a tree",
        floods_costs=True,
        advised=True,
        case=Case(
            1,
            "the channel is known and constant within an exchange, so that the minimum spanning "
            "tree costs the least energy (Theorem 3, case 1)",
            channel_known=True,
        ),
        citation=PAPER,
    )
)
