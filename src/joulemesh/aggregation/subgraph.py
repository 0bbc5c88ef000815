"""The part of the radio graph that still takes part, with its devices counted from 0."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import IntArray, Route
from joulemesh.world.links import LinkCosts
from joulemesh.world.topology import Graph

__all__ = ["Subgraph"]


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Some devices of a graph and the links among them, under their own numbers.

    Attributes:
        devices: number A of devices.
        edges: int64 [E', 2], i < j < A, sorted.
        ring: a ring that is known to run through all of them, or None.
        part: `members` and `links`; None for the whole graph, which needs no other numbers.
    """

    devices: int
    edges: IntArray
    ring: IntArray | None
    part: tuple[IntArray, IntArray] | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        active: NDArray[np.bool_] | None = None,
        cut: NDArray[np.bool_] | None = None,
    ) -> Subgraph:
        """The subgraph of the active devices (all of them by default).

        Args:
            graph: the whole.
            active: bool [N]: who takes part.
            cut: bool [E]: links that carry nothing; none by default.

        >>> graph = Graph(3, np.array([[0, 1], [0, 2], [1, 2]]), np.zeros((3, 2)))
        >>> part = Subgraph.of(graph, np.array([True, False, True]))
        >>> part.edges.tolist(), part.members.tolist(), part.links.tolist()
        ([[0, 1]], [0, 2], [1])
        """
        whole = cut is None or not cut.any()
        if whole and (active is None or active.all()):
            return cls(graph.devices, graph.edges, graph.ring)
        active = np.ones(graph.devices, np.bool_) if active is None else active
        members = np.flatnonzero(active)
        number = np.full(graph.devices, -1)
        number[members] = np.arange(len(members))
        joined = active[graph.edges].all(axis=1)
        links = np.flatnonzero(joined if cut is None else joined & ~cut)
        return cls(len(members), number[graph.edges[links]], None, (members, links))

    @property
    def members(self) -> IntArray:
        """int64 [A]: each device's number in the whole graph."""
        return np.arange(self.devices) if self.part is None else self.part[0]

    @property
    def links(self) -> IntArray:
        """int64 [E']: each link's position in the whole graph's edge list."""
        return np.arange(len(self.edges)) if self.part is None else self.part[1]

    def own(self, costs: LinkCosts) -> LinkCosts:
        """Select this subgraph's links from costs given for the whole graph."""
        return costs if self.part is None else costs.take(self.part[1])

    def in_whole(self, route: Route) -> Route:
        """A route of this subgraph under the whole graph's numbers."""
        if self.part is None:
            return route
        members, links = self.part
        return dataclasses.replace(
            route,
            edges=members[route.edges],
            link_index=links[route.link_index],
            root=int(members[route.root]) if route.root >= 0 else -1,
        )
