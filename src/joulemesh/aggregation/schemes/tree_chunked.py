"""The pipelined spanning tree: chunks of the sums go up, chunks of the mean come down.

It takes the joules of the tree and, with enough chunks, little more than the seconds of the tree's
slowest link (`joulemesh.aggregation.pipeline`). A tree whose links cost a few more joules may be
faster (`joulemesh.aggregation.tree_front`): the fastest is taken that costs at most
``plan.tree_slack`` more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.chunk_peer import TreeChunkedPeer
from joulemesh.aggregation.medium import Medium
from joulemesh.aggregation.on_air import route_j
from joulemesh.aggregation.pipeline import (
    choose_chunks,
    chunked_tree_route,
    least_s,
    pipelined_s,
)
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import Conditions, Fit, RoutesToTry, SchemeKind
from joulemesh.aggregation.schemes.base import ExactScheme
from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.aggregation.tree import shortest_path_tree
from joulemesh.aggregation.tree_front import (
    WeightedTree,
    device_joules,
    hull_of_trees,
    weighted_tree,
)
from joulemesh.errors import Edit, ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = ["TreeChunked"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class TreeChunked(ExactScheme):
    """Reduce along a spanning tree in chunks to its best root, and broadcast back in chunks.

    The weight and the number of chunks are chosen once, for the costs that were forecast.

    Attributes:
        medium: of the subgraph's devices; it decides the root.
        chunks: number of chunks.
        weight_w: joules that a second on a link is worth in the choice of the tree; 0 for the
            minimum spanning tree.
        fixed: was the number of chunks asked for?
    """

    medium: Medium
    chunks: int
    weight_w: float = 0.0
    fixed: bool = False

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Along the tree that is the cheapest by these costs, seconds weighed in."""
        own = self.graph.own(costs)
        return self._along(self._links(costs), own)

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The tree of now, that of the forecast and a quick one, if the planner sees the costs.

        Otherwise the tree of the forecast alone.
        """
        graph, links = self.graph, self._links(forecast)

        def to_try(seen: LinkCosts | None, iteration: int) -> Iterator[Route]:
            own = graph.own(forecast if seen is None else seen)
            if seen is not None:
                yield self.route(seen, iteration)
            yield self._along(links, own)
            if seen is not None:
                quick = shortest_path_tree(graph.edges, self.whole(seen), graph.devices)
                yield self._along(quick, own)

        return to_try

    def _links(self, costs: LinkCosts) -> IntArray:
        """The tree, as positions in the subgraph's edge list."""
        graph = self.graph
        return weighted_tree(graph.edges, self.whole(costs), graph.devices, self.weight_w).links

    def _along(self, links: IntArray, own: LinkCosts) -> Route:
        """The pipelined tree over some links of the subgraph, with its best root."""
        graph, chunks = self.graph, self.chunks
        route = chunked_tree_route(graph.edges, links, own, graph.devices, self.bits, self.medium)
        if self.medium.turns and not self.fixed and chunks > 1:
            # Where one device limits the pace, turns between chunks may cost more than they save.
            seconds = pipelined_s(route, own, graph.devices, self.medium)
            chunks = chunks if seconds(chunks) <= seconds(1) else 1
        return graph.in_whole(replace(route, chunks=chunks))

    def peer(self, device: int, route: Route) -> TreeChunkedPeer:
        """A device of the tree."""
        return TreeChunkedPeer(device, route)


# The choice of the tree and of the chunks ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A tree of the front, with the chunks that suit it."""

    tree: WeightedTree
    chunks: int
    seconds: float
    spent_j: FloatArray  # [A], of one exchange

    def within(self, more: float, least: _Candidate, battery_j: FloatArray) -> bool:
        """Does it take at most so many times the joules of all, and of the share of a battery?"""
        share, most = _largest(self.spent_j, battery_j), _largest(least.spent_j, battery_j)
        total, fewest = float(self.spent_j.sum()), float(least.spent_j.sum())
        return total <= more * fewest and share <= more * most


def _candidate(conditions: Conditions, own: LinkCosts, tree: WeightedTree) -> _Candidate:
    graph, bits, medium = conditions.graph, conditions.bits, conditions.own_medium
    route = chunked_tree_route(graph.edges, tree.links, own, graph.devices, bits, medium)
    asked = conditions.options.chunks
    chunks = asked or choose_chunks(route, own, graph.devices, medium)
    seconds = pipelined_s(route, own, graph.devices, medium)(chunks)
    spent = route_j(replace(route, chunks=chunks), own, graph.devices, broadcast=medium.broadcast)
    return _Candidate(tree, chunks, seconds, spent)


def _least_s(conditions: Conditions, own: LinkCosts, tree: WeightedTree) -> float:
    graph, links = conditions.graph, tree.links
    prices = own.take(links)
    return least_s(graph.edges[links], prices, graph.devices, conditions.bits, conditions.medium)


def _front(conditions: Conditions) -> list[_Candidate]:
    """The trees that may be taken, from the fewest joules on; each is faster than those before.

    Neither the joules of all devices nor the largest share of any battery may exceed those of the
    minimum spanning tree by more than ``plan.tree_slack``. Links are weighed by what the whole
    vector takes in one message; chunks take no less.
    """
    costs = conditions.graph.own(conditions.costs)
    own = costs.for_messages(conditions.bits)
    graph, more = conditions.graph, 1.0 + conditions.options.tree_slack
    least = weighted_tree(graph.edges, own, graph.devices, 0.0)
    trees = [least]
    if conditions.options.tree_slack > 0:
        trees += hull_of_trees(graph.edges, own, graph.devices, most_joules=more * least.joules)
    battery_j, broadcast = conditions.battery_j[graph.members], conditions.medium.broadcast
    allowed = more * _largest_share(graph, least, own, battery_j)
    kept: list[_Candidate] = []
    for tree in trees:
        if tree is not least and (
            np.array_equal(tree.links, least.links)
            or (not broadcast and _largest_share(graph, tree, own, battery_j) > allowed)
            or _least_s(conditions, own, tree) >= kept[-1].seconds  # it cannot be faster
        ):
            continue
        one = _candidate(conditions, costs, tree)
        # The joules of broadcasts depend on the root, and are known only now.
        if kept and broadcast and not one.within(more, kept[0], battery_j):
            continue
        if not kept or one.seconds < kept[-1].seconds:
            kept.append(one)
    return kept


def _largest_share(
    graph: Subgraph, tree: WeightedTree, own: LinkCosts, battery_j: FloatArray
) -> float:
    """The largest share of a battery that one bit takes from any device."""
    return _largest(device_joules(graph.edges, tree.links, own, graph.devices), battery_j)


def _largest(spent_j: FloatArray, battery_j: FloatArray) -> float:
    with np.errstate(divide="ignore"):  # an empty battery has no share to give
        return float(np.max(spent_j / battery_j, initial=0.0))


def _ready(conditions: Conditions, fit: Fit, reason: str) -> TreeChunked:
    graph, bits, asked = conditions.graph, conditions.bits, conditions.options.chunks
    if asked is not None and asked > bits:
        raise ScenarioError(
            f"plan.chunks = {asked:,} cuts a vector of {bits:,.0f} bits into chunks of less than "
            "one bit",
            remedies=[
                (Edit("plan.chunks", max(int(bits), 1), "lower"),),
                (Edit("plan.chunks", None),),
            ],
        )
    front = _front(conditions)
    best = front[-1]
    said = [reason, f"{best.chunks:,} chunks of {bits / best.chunks:,.0f} bits"]
    if best is not front[0]:
        more = 100 * (best.spent_j.sum() / front[0].spent_j.sum() - 1)
        less = 100 * (1 - best.seconds / front[0].seconds)
        said.append(f"a tree of {more:.2g} % more joules and {less:.2g} % fewer seconds")
    return TreeChunked(
        TREE_CHUNKED,
        "; ".join(said),
        graph,
        bits,
        conditions.own_medium,
        best.chunks,
        best.tree.weight_w,
        asked is not None,
    )


TREE_CHUNKED = SCHEMES.register(
    SchemeKind(
        "tree-chunked",
        "a spanning tree that carries the parameters in chunks, one behind another",
        _ready,
        words="along a tree in chunks",
        floods_costs=True,
        parameters=("chunks", "tree_slack"),
        advised=True,
    )
)
