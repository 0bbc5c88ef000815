"""The tree, and the tree in chunks: routes, mixing and peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import Medium, route_j
from joulemesh.aggregation.peer import Message, RoutePeer, Vector
from joulemesh.aggregation.route import IntArray, Route, Subgraph
from joulemesh.aggregation.scheme import Case, Conditions, ExactScheme, Fit, RoutesToTry, SchemeKind
from joulemesh.aggregation.tree import (
    WeightedTree,
    branch_sizes,
    choose_chunks,
    chunked_tree_route,
    device_joules,
    hull_of_trees,
    least_s,
    pipelined_s,
    shortest_path_tree,
    spanning_tree,
    tree_route,
    weighted_tree,
)
from joulemesh.base.citation import PAPER
from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = ["Tree", "TreeChunked", "TreeChunkedPeer", "TreePeer"]


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
    """Adds up what its children send, passes the sum on, and takes the mean that comes back."""

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


class TreeChunkedPeer:
    """Adds its own chunk to those of its children, passes it on, and takes that of the mean.

    It needs no step to be over: a chunk can go as soon as it is complete (`due`), and a message may
    arrive at any time. Chunks are added up in the order of their senders, so that sums do not
    depend on which came first.
    """

    def __init__(self, device: int, route: Route) -> None:
        self.device, self.chunks = device, route.chunks
        self._root = device == route.root
        self._route = route
        self._count = len(np.unique(route.edges))
        sender, receiver = route.sender, route.receiver
        half = route.steps // 2  # steps of the way up; the others are the way down
        self._to = self._steps(route, sender, receiver)
        self._from = self._steps(route, receiver, sender)
        self._children = sorted(other for other, step in self._from.items() if step < half)
        self._up = {other for other, step in self._to.items() if step < half}

    def _steps(self, route: Route, own: IntArray, other: IntArray) -> dict[int, int]:
        """The devices at the other end of this device's messages, each with its step."""
        rows = np.flatnonzero(own == self.device)
        return dict(zip(other[rows].tolist(), route.step[rows].tolist(), strict=True))

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P], of which some chunks may be empty."""
        self._own = np.array_split(own, self.chunks)
        self._arrived: list[dict[int, Vector]] = [{} for _ in range(self.chunks)]
        self._sum: dict[int, Vector] = {}
        self._mean: dict[int, Vector] = {}
        self._complete: list[tuple[int, bool]] = []  # chunks not given by `due`: sum, or mean?
        for chunk in range(self.chunks):
            self._add_up(chunk)

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        """Take a message that was sent in a step."""
        chunk = step - self._from.get(sender, step + 1)
        if not 0 <= chunk < self.chunks or sender in self._arrived[chunk]:
            raise RuntimeError(
                f"device {self.device} expects no message of device {sender} in step {step} of "
                "the exchange; carry each message of the route once"
            )
        self._arrived[chunk][sender] = payload
        if sender in self._children:
            self._add_up(chunk)
        else:
            self._mean[chunk] = payload
            self._complete.append((chunk, False))

    def lose(self, step: int, sender: int) -> None:
        """Go on without a chunk that was lost, as the devices of the plain tree do."""
        chunk = step - self._from.get(sender, step + 1)
        if not 0 <= chunk < self.chunks:
            raise RuntimeError(
                f"device {self.device} awaits no message of device {sender} in step {step} of the "
                "exchange, and cannot lose it"
            )
        sizes = branch_sizes(self._route)
        if sender in self._children:
            self.receive(step, sender, sizes[sender] * self._own[chunk])
        else:
            self.receive(step, sender, self._sum[chunk] / sizes[self.device])

    def _add_up(self, chunk: int) -> None:
        """The sum of the devices below and this one, once all children have sent theirs."""
        arrived = self._arrived[chunk]
        if any(child not in arrived for child in self._children):
            return
        total = self._own[chunk]
        for child in self._children:
            total = total + arrived[child]
        self._sum[chunk] = total
        self._complete.append((chunk, True))
        if self._root:
            self._mean[chunk] = total / self._count
            self._complete.append((chunk, False))

    def _payload(self, chunk: int, to: int) -> Vector | None:
        """What is sent of a chunk: the sum to the parent, the mean to a child; None as yet."""
        return (self._sum if to in self._up else self._mean).get(chunk)

    def send(self, step: int) -> list[Message]:
        """The messages of this device in a step."""
        found = []
        for to, first in self._to.items():
            chunk = step - first
            if 0 <= chunk < self.chunks:
                payload = self._payload(chunk, to)
                if payload is None:
                    raise RuntimeError(
                        f"device {self.device} lacks a message of chunk {chunk} that it needs in "
                        f"step {step}; wait for it"
                    )
                found.append((to, payload))
        return found

    def due(self) -> list[tuple[int, int, Vector]]:
        """Messages that can go now, each given once: (step, receiver, what is sent to it)."""
        complete, self._complete = self._complete, []
        return [
            (first + chunk, to, (self._sum if up else self._mean)[chunk])
            for chunk, up in complete
            for to, first in self._to.items()
            if (to in self._up) == up
        ]

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""
        if not self._from:  # alone, or not on the route: nothing to average
            return np.concatenate(self._own)
        if len(self._mean) < self.chunks:
            raise RuntimeError(
                f"device {self.device} has {len(self._mean)} of {self.chunks} chunks of the mean; "
                "wait for the others"
            )
        return np.concatenate([self._mean[chunk] for chunk in range(self.chunks)])


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


def _ready_in_chunks(conditions: Conditions, fit: Fit, reason: str) -> TreeChunked:
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
        _ready_in_chunks,
        words="along a tree in chunks",
        floods_costs=True,
        parameters=("chunks", "tree_slack"),
        advised=True,
    )
)
