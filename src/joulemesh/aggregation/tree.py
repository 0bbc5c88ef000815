"""Trees: of least weight, of least joules × seconds, and pipelined in chunks; their schemes.

In a pipelined tree a device forwards chunk c to its parent as soon as it has c from all of its
children, and the root sends chunk c of the mean down as soon as it has it. Every link carries the
whole vector once each way, whatever the number of chunks, so the joules are the tree's but for more
packets and messages; the seconds fall from those of the longest path towards those of the slowest
link, until packets and messages cost more than the pipeline saves (notes: pipelined-tree).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from joulemesh.aggregation.air import (
    ORTHOGONAL,
    Medium,
    Rooted,
    half_duplex_s,
    hang,
    levelled,
    link_graph,
    on_air,
    route_j,
)
from joulemesh.aggregation.fair import TreeRule
from joulemesh.aggregation.peer import Message, RoutePeer, Summed, Vector
from joulemesh.aggregation.play import frame, in_frames_s, in_slots, paths, shared_s, turns_s
from joulemesh.aggregation.route import IntArray, Route, Subgraph
from joulemesh.aggregation.scheme import Case, Conditions, ExactScheme, Fit, RoutesToTry, SchemeKind
from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.base.registry import PAPER
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts, packets_of

FloatArray = NDArray[np.float64]

_CHEAPEST = 4  # links for each device that are tried first
_FEW = 8  # times as many links pay for a look at which of them are the cheapest
_EVERY_ROOT = 256  # up to here every root is tried in half duplex, where no closed form exists
_EVERY_PLAYED = 32  # the same where each root is a schedule of its own
_SOME_PLAYED = 2_000  # beyond, schedules are too dear to compare


def spanning_tree(edges: IntArray, weight: FloatArray, devices: int) -> IntArray:
    """Kruskal's minimum spanning tree, as sorted positions in ``edges`` (which must be sorted)."""
    key = edges[:, 0] * devices + edges[:, 1]
    # Kruskal's algorithm is over once all are joined: in a dense graph the cheapest links do that.
    few = min(_CHEAPEST * devices, len(edges))
    order = _cheapest_first(weight, few)
    for count in sorted({few, len(edges)}):
        if len(order) < count:
            order = np.argsort(weight, kind="stable")
        # Ranks of the weights give the same tree, and never a zero, which SciPy reads as "no link".
        rank = np.zeros(len(edges))
        rank[order[:count]] = np.arange(1.0, count + 1.0)
        used = np.flatnonzero(rank)
        tree = minimum_spanning_tree(link_graph(edges[used], rank[used], devices)).tocoo()
        if tree.nnz == devices - 1:
            break
    ends = np.sort(np.stack([tree.row, tree.col], axis=1).astype(np.int64), axis=1)
    return np.sort(np.searchsorted(key, ends[:, 0] * devices + ends[:, 1]))


def _cheapest_first(weight: FloatArray, count: int) -> IntArray:
    """The order of the weights, or its beginning: ``count`` or more, as a stable sort has them."""
    if 0 < _FEW * count < len(weight):
        near = np.flatnonzero(weight <= np.partition(weight, count - 1)[count - 1])
        return near[np.argsort(weight[near], kind="stable")]
    return np.argsort(weight, kind="stable")


def shortest_path_tree(edges: IntArray, costs: LinkCosts, devices: int) -> IntArray:
    """Links of a quick tree: the shortest paths in time from the spanning tree's best root.

    It trades energy for time; used when the minimum spanning tree misses a deadline in a fade.
    """
    links = spanning_tree(edges, costs.weight(), devices)
    root = best_root(edges[links], costs.take(links), devices, ORTHOGONAL)
    seconds = costs.forward_s + costs.backward_s
    graph = link_graph(edges, seconds, devices)
    _, parent = dijkstra(graph, directed=False, indices=[root], return_predecessors=True)
    parent = parent[0]
    child = np.flatnonzero(parent >= 0)
    ends = np.sort(np.stack([child, parent[child]], axis=1).astype(np.int64), axis=1)
    key = edges[:, 0] * devices + edges[:, 1]
    return np.sort(np.searchsorted(key, ends[:, 0] * devices + ends[:, 1]))


def root_latencies_s(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> FloatArray:
    """Critical path of reduce plus broadcast for every choice of root, in seconds per bit.

    With orthogonal channels it is the time for the farthest device to reach the root plus the time
    for the root to reach the farthest device (notes: critical-path-of-a-tree). Computed for all
    roots at once by re-rooting the tree that hangs from ``root``; devices outside the tree get
    infinity.
    """
    tree = hang(edges, costs, devices, root)
    gather = _farthest(tree, tree.up, tree.down)
    scatter = _farthest(tree, tree.down, tree.up)
    outside = np.full(devices, np.inf)
    for level in tree.levels:
        outside[level] = 0.0
    return np.asarray(gather + scatter + outside)


def _farthest(tree: Rooted, inward: FloatArray, outward: FloatArray) -> FloatArray:
    """Longest sum of ``inward`` lengths from any device to each device (``outward`` from above)."""
    count = len(tree.parent)
    below, best, second = np.zeros(count), np.zeros(count), np.zeros(count)
    for level in reversed(tree.levels[1:]):
        parent, reach = tree.parent[level], below[level] + inward[level]
        np.maximum.at(below, parent, reach)
    inner = np.concatenate(tree.levels[1:]) if len(tree.levels) > 1 else np.empty(0, np.int64)
    reach = below + inward
    order = inner[np.lexsort((reach[inner], tree.parent[inner]))]
    parent = tree.parent[order]
    last = np.flatnonzero(np.append(parent[1:] != parent[:-1], len(parent) > 0))
    best[parent[last]] = reach[order[last]]
    before = last[last > 0] - 1
    before = before[parent[before] == parent[before + 1]]
    second[parent[before]] = reach[order[before]]
    champion = np.full(count, -1)
    champion[parent[last]] = order[last]
    above = np.zeros(count)
    for level in tree.levels[1:]:
        parent = tree.parent[level]
        sibling = np.where(champion[parent] == level, second[parent], best[parent])
        above[level] = outward[level] + np.maximum(above[parent], sibling)
    return np.maximum(below, above)


def best_root(edges: IntArray, costs: LinkCosts, devices: int, medium: Medium) -> int:
    """The root with the shortest exchange; ties go to the lowest index.

    Where no closed form exists, every root of a small tree is tried; in a larger one, a descent
    along the tree starts from the best root of orthogonal links; in the largest, that root is taken
    if every trial would mean to put the whole tree into slots.
    """
    start = int(edges[0, 0]) if len(edges) else 0
    latency = root_latencies_s(edges, costs, devices, start)
    root = int(np.argmin(latency))
    if not (medium.turns or medium.broadcast):
        return root
    members = np.flatnonzero(np.isfinite(latency))
    in_turns = not (medium.shared or medium.broadcast)
    seconds = _half_duplex if in_turns else _played
    if len(members) <= (_EVERY_ROOT if in_turns else _EVERY_PLAYED):
        timed = [(seconds(edges, costs, devices, int(u), medium), int(u)) for u in members]
        return min(timed)[1]
    if not in_turns and len(members) > _SOME_PLAYED:
        return root
    best = seconds(edges, costs, devices, root, medium)
    while True:
        near = [int(u) for u in np.unique(edges[(edges == root).any(axis=1)]) if u != root]
        value, candidate = min((seconds(edges, costs, devices, u, medium), u) for u in near)
        if value >= best:
            return root
        best, root = value, candidate


def _half_duplex(
    edges: IntArray, costs: LinkCosts, devices: int, root: int, medium: Medium
) -> float:
    return half_duplex_s(edges, costs, devices, root)


def _played(edges: IntArray, costs: LinkCosts, devices: int, root: int, medium: Medium) -> float:
    """Seconds per bit of the tree with this root: in slots, or by broadcasts on own links."""
    route = _rooted_route(edges, costs, devices, 1.0, root)
    if medium.shared:
        return shared_s(route, costs, devices, medium)
    tree = hang(edges, levelled(route, costs, broadcast=medium.broadcast), devices, root)
    return _depths(tree, tree.up) + _depths(tree, tree.down)


def _depths(tree: Rooted, lengths: FloatArray) -> float:
    """The largest sum of lengths between the root and any device."""
    total = np.zeros(len(tree.parent))
    for level in tree.levels[1:]:
        total[level] = total[tree.parent[level]] + lengths[level]
    return float(total.max())


def tree_route(
    graph_edges: IntArray,
    links: IntArray,
    costs: LinkCosts,
    devices: int,
    bits: float,
    medium: Medium,
) -> Route:
    """Reduce along the tree to its best root, then broadcast back along the same links."""
    edges, tree_costs = graph_edges[links], costs.take(links).for_messages(bits)
    root = best_root(edges, tree_costs, devices, medium)
    return _rooted_route(edges, tree_costs, devices, bits, root).on_links(links)


def _rooted_route(edges: IntArray, costs: LinkCosts, devices: int, bits: float, root: int) -> Route:
    """Up a tree to a root, and down again; over links of their own numbers."""
    tree = hang(edges, costs, devices, root)
    depth = len(tree.levels) - 1
    inner = tree.levels[1:]
    step = np.repeat(np.arange(depth), [len(level) for level in inner])
    child = np.concatenate(inner) if inner else np.empty(0, np.int64)
    link = tree.link[child]
    toward_root = edges[link, 0] == child
    route = Route.build(
        "tree",
        edges=edges,
        edge=np.concatenate([link[::-1], link]),
        forward=np.concatenate([toward_root[::-1], ~toward_root]),
        step=np.concatenate([(depth - 1 - step)[::-1], depth + step]),
        bits=bits,
        repeats=1,
        uses=2,
    )
    return route.rooted(root).for_all()


def branch_sizes(route: Route) -> dict[int, int]:
    """Number of devices in the branch of each device of a tree, itself included."""
    sizes = dict.fromkeys(np.unique(route.edges).tolist(), 1)
    up = route.step < route.steps // 2
    for sender, receiver in zip(
        route.sender[up].tolist(), route.receiver[up].tolist(), strict=True
    ):
        sizes[receiver] += sizes[sender]
    return sizes


_SAME = 1e-12  # relative: sums of the same links in another order
_MOST_TREES = 16
_FEWEST_SPARED = 3  # devices


@dataclass(frozen=True, eq=False)
class WeightedTree:
    """A spanning tree, and the weight on seconds for which it is the cheapest.

    Attributes:
        weight_w: λ: joules that one second less is worth; 0 for the minimum spanning tree.
        links: positions of its links in the graph's edge list, sorted.
        joules: of one bit, sent once each way on every link.
        seconds: of one bit, the same, added up over the links.
    """

    weight_w: float
    links: IntArray
    joules: float
    seconds: float


def link_seconds(costs: LinkCosts) -> FloatArray:
    """Seconds to send one bit both ways on each link."""
    return costs.forward_s + costs.backward_s


def weighted_tree(edges: IntArray, costs: LinkCosts, devices: int, weight_w: float) -> WeightedTree:
    """The spanning tree that is the cheapest if a second is worth ``weight_w`` joules."""
    joules, seconds = costs.weight(), link_seconds(costs)
    if np.isinf(weight_w):
        links = spanning_tree(edges, seconds, devices)
    else:  # exactly the joules' own order, if the seconds do not count
        links = spanning_tree(edges, joules + weight_w * seconds if weight_w else joules, devices)
    return WeightedTree(weight_w, links, float(joules[links].sum()), float(seconds[links].sum()))


def hull_of_trees(
    edges: IntArray, costs: LinkCosts, devices: int, *, most_joules: float = np.inf
) -> list[WeightedTree]:
    """The trees of all weights λ, from the fewest joules on: the corners of the lower hull."""
    found = [weighted_tree(edges, costs, devices, weight) for weight in (0.0, np.inf)]
    gaps = [(found[0], found[1])]
    while gaps and len(found) < _MOST_TREES:
        left, right = gaps.pop()
        if left.joules > most_joules or not _apart(left, right):
            continue
        weight = (right.joules - left.joules) / (left.seconds - right.seconds)
        middle = weighted_tree(edges, costs, devices, weight)
        straight = left.joules + weight * left.seconds  # the chord between the two
        if middle.joules + weight * middle.seconds < straight * (1 - _SAME):
            found.append(middle)
            gaps += [(middle, right), (left, middle)]  # the cheaper half first
    kept: list[WeightedTree] = []
    for tree in sorted(found, key=lambda one: (one.joules, one.seconds)):
        if tree.joules <= most_joules and (not kept or _apart(kept[-1], tree)):
            kept.append(tree)
    return kept


def _apart(left: WeightedTree, right: WeightedTree) -> bool:
    """Does the right tree take more joules and fewer seconds, by more than rounding?"""
    return right.seconds < left.seconds * (1 - _SAME) and right.joules > left.joules * (1 + _SAME)


def device_joules(edges: IntArray, links: IntArray, costs: LinkCosts, devices: int) -> FloatArray:
    """float64 [N]: joules of each device if one bit passes each link of a tree both ways.

    They do not depend on the root (notes: price-of-an-exchange).
    """
    return costs.take(links).device_j(edges[links], devices)


FRAME_BITS = 12_000.0  # 1,500 bytes: Ethernet and Wi-Fi
SMALL_FRAME_BITS = 1_016.0  # 127 bytes: IEEE 802.15.4
_NEAR = 1.01  # fewer chunks are taken for a hundredth of the seconds
_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # chunks, in half duplex
_FINE = 1.2  # from one number of chunks to the next, where packets and messages have a price
_BEYOND = 1.5  # times the least joules × seconds: more chunks only grow dearer from there on


def most_chunks(bits: float, devices: int, packet_bits: float = FRAME_BITS) -> int:
    """The most chunks that are considered for a vector.

    Chunks are kept to the size of a packet, or to that of Ring-AllReduce, the vector in N parts, if
    that is less; but not below a small frame, unless packets are smaller.
    """
    return max(1, int(bits // packet_bits), min(devices, int(bits // SMALL_FRAME_BITS)))


def least_s(edges: IntArray, costs: LinkCosts, devices: int, bits: float, medium: Medium) -> float:
    """Seconds that no number of chunks goes below: of the slowest link, or the busiest device."""
    if not medium.turns or medium.broadcast:
        both = np.concatenate([costs.forward_s, costs.backward_s])
        return bits * float(np.max(both, initial=0.0))
    busy = np.bincount(edges.ravel(), np.repeat(costs.forward_s + costs.backward_s, 2), devices)
    return bits * float(busy.max())


# Routes -----------------------------------------------------------------------------------------


def chunked_tree_route(
    graph_edges: IntArray,
    links: IntArray,
    costs: LinkCosts,
    devices: int,
    bits: float,
    medium: Medium,
) -> Route:
    """`tree_route` made fit for a pipeline: its links are listed in the order of their turns.

    Links of one colour share no device; a tree whose busiest device has d links needs d colours.
    The number of chunks is 1: ``dataclasses.replace(route, chunks=…)`` sets it.
    """
    plain = tree_route(graph_edges, links, costs, devices, bits, medium)
    half = len(plain.edge) // 2
    down, depth = plain.edge[half:], plain.step[half:]
    colour = _colours(plain.sender[half:], plain.receiver[half:], depth, devices)
    order = down[np.lexsort((depth, colour))]
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return replace(
        plain,
        scheme="tree-chunked",
        edges=plain.edges[order],
        link_index=plain.link_index[order],
        edge=position[plain.edge],
    )


def _colours(parent: IntArray, child: IntArray, depth: IntArray, devices: int) -> IntArray:
    """Colours of a tree's links, listed level by level from the root, siblings in a row.

    The children of a device take the colours 0, 1, …, except that of the link to its own parent.
    """
    number = np.arange(len(parent))
    new = np.append(True, parent[1:] != parent[:-1])[: len(parent)]
    rank = number - np.maximum.accumulate(np.where(new, number, 0))
    own = np.full(devices, len(parent) + 1)  # colour of each device's link to its parent
    bounds = np.append(np.flatnonzero(np.diff(depth, prepend=-1)), len(depth)).tolist()
    for low, high in pairwise(bounds):
        level = slice(low, high)
        own[child[level]] = rank[level] + (rank[level] >= own[parent[level]])
    return own[child]


# Seconds, and how many chunks ---------------------------------------------------------------------


def pipelined_s(
    route: Route, costs: LinkCosts, devices: int, medium: Medium
) -> Callable[[int], float]:
    """Seconds of a pipelined tree as a function of its number of chunks."""
    if not len(route.edge):
        return lambda chunks: 0.0
    if costs.free:  # chunks cost no more than their bits: what is found once serves all of them
        return _timed(route, costs, devices, medium)
    return lambda chunks: _timed(replace(route, chunks=chunks), costs, devices, medium)(chunks)


def _timed(route: Route, costs: LinkCosts, devices: int, medium: Medium) -> Callable[[int], float]:
    """Seconds by the number of chunks, with packets and messages of the route's own chunks."""
    if medium.shared:
        return _slotted_s(route, costs, devices, medium)
    own, bits = levelled(route, costs, broadcast=medium.broadcast), float(route.bits[0])
    if not medium.turns:
        found = paths(route.edges, own, devices, route.root)
        return lambda chunks: found.seconds(bits, chunks)
    whole = route.seconds(costs)

    def in_turns(chunks: int) -> float:
        if chunks == 1:  # children in the best order, which one chunk allows
            return bits * half_duplex_s(route.edges, own, devices, route.root)
        return turns_s(replace(route, chunks=chunks), whole, devices)

    return in_turns


def _slotted_s(
    route: Route, costs: LinkCosts, devices: int, medium: Medium
) -> Callable[[int], float]:
    air = on_air(route, costs, broadcast=medium.broadcast)
    in_chunks = in_frames_s(air, frame(air, devices, medium.reach))
    whole_s = in_slots(air, devices, medium.reach).seconds
    return lambda chunks: whole_s if chunks == 1 else in_chunks(chunks)


def choose_chunks(route: Route, costs: LinkCosts, devices: int, medium: Medium) -> int:
    """The number of chunks of a pipelined tree: the fewest that are nearly the fastest.

    Where packets and messages have a price, more chunks cost more joules and may take longer: the
    fewest are taken that come within 1 % of the least joules × seconds. Those are tried that fill
    their packets, and numbers in between.
    """
    if not len(route.edge):
        return 1
    bits, seconds = float(route.bits[0]), pipelined_s(route, costs, devices, medium)
    if costs.free:
        return fewest_chunks(seconds, most_chunks(bits, devices), medium)
    most = most_chunks(bits, devices, min(costs.packet_bits, FRAME_BITS))
    tried: dict[int, float] = {}
    for chunks in _worth_trying(bits, most, costs.packet_bits):
        sent = replace(route, chunks=chunks)
        joules = float(route_j(sent, costs, devices, broadcast=medium.broadcast).sum())
        tried[chunks] = joules * seconds(chunks)
        if tried[chunks] > _BEYOND * min(tried.values()):
            break
    enough = _NEAR * min(tried.values())
    return next(chunks for chunks, taken in tried.items() if taken <= enough)


def _worth_trying(bits: float, most: int, packet_bits: float) -> list[int]:
    """Numbers of chunks from 1 to ``most``: a geometric grid, and those that fill their packets."""
    grid, last = {1, most}, 1.0
    while last < most:
        last *= _FINE
        grid.add(min(round(last), most))
    packets = packets_of(bits, packet_bits)
    each = np.unique(np.ceil(packets / np.arange(1, min(int(packets), most) + 1)))
    return sorted(grid | {int(chunks) for chunks in each if chunks <= most})


def fewest_chunks(seconds: Callable[[int], float], most: int, medium: Medium) -> int:
    """The fewest chunks that come within 1 % of the least seconds, among 1 to ``most``.

    Packets and messages have no price of their own here. With orthogonal links more chunks never
    take longer (the sum along a chain is at least its maximum), so the least seconds are those of
    ``most`` and bisection is exact. In half duplex the seconds fall likewise, but not without
    exceptions, and are dear to compute. Some numbers up to 64 are tried; beyond, the turns of a
    step have found their pace, so that C chunks take C · seconds(C) = a + b·C, which the last two
    that were tried decide. In slots the same numbers are tried, and one frame gives the seconds of
    any.
    """
    grid, price = sorted({1, most}), seconds
    if medium.turns:
        grid = [*(chunks for chunks in _TRIED if chunks < most), most]
    if medium.turns and not medium.shared:
        price = _in_step(seconds, *_TRIED[-2:]) if most > _TRIED[-1] else seconds
    tried = {chunks: price(chunks) for chunks in grid}
    enough = _NEAR * min(tried.values())
    after = next(k for k, chunks in enumerate(grid) if tried[chunks] <= enough)
    low, high = (grid[after - 1] if after else 0), grid[after]
    while high - low > 1:  # low is not good enough, high is
        middle = (low + high) // 2
        low, high = (low, middle) if price(middle) <= enough else (middle, high)
    return high


def _in_step(seconds: Callable[[int], float], low: int, high: int) -> Callable[[int], float]:
    """The seconds up to ``high`` chunks, and beyond on the line through the last two."""
    of_low, of_high = low * seconds(low), high * seconds(high)
    slope = (of_high - of_low) / (high - low)

    def price(chunks: int) -> float:
        if chunks <= high:
            return seconds(chunks)
        return (of_high + slope * (chunks - high)) / chunks

    return price


@dataclass(frozen=True)
class _TreeScheme(ExactScheme):
    """Reduce along a spanning tree to its best root, and broadcast back."""

    medium: Medium
    rule: TreeRule | None = field(default=None, kw_only=True)
    _routes: dict[int, tuple[LinkCosts, Route]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def random(self) -> bool:
        """Do trees take turns?"""
        return self.rule is not None and self.rule.turns

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Along the tree of an iteration by these costs."""
        if self.rule is None:
            return self._along(self._least(costs), self._own(costs))
        trees = self.rule.kept(costs, lambda: self._trees(costs))
        turn = iteration % len(trees)
        if turn not in self._routes or self._routes[turn][0] is not costs:
            self._routes[turn] = costs, self._along(trees[turn], self._own(costs))
        return self._routes[turn][1]

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The tree of now, that of the forecast and a quick one, if the planner sees the costs.

        Otherwise the tree of the forecast alone.
        """
        graph, trees = self.graph, self._trees(forecast)

        def to_try(seen: LinkCosts | None, iteration: int) -> Iterator[Route]:
            # The root, too, is chosen by the gains that the planner may see.
            own = self._own(forecast if seen is None else seen)
            if seen is not None:
                yield self.route(seen, iteration)
            yield self._along(trees[iteration % len(trees)], own)
            if seen is not None:  # it trades energy for time where a fade makes the others late
                quick = shortest_path_tree(graph.edges, self.whole(seen), graph.devices)
                yield self._along(quick, own)

        return to_try

    def _trees(self, costs: LinkCosts) -> tuple[IntArray, ...]:
        """The trees that take turns, as positions in the subgraph's edge list."""
        graph, least = self.graph, self._least(costs)
        if self.rule is None:
            return (least,)
        spanning = partial(spanning_tree, graph.edges, devices=graph.devices)
        return self.rule.trees(graph.edges, self.whole(costs), spanning, least)

    def _own(self, costs: LinkCosts) -> LinkCosts:
        """The costs of the subgraph's links by which a root is chosen."""
        return self.whole(costs)

    @abstractmethod
    def _least(self, costs: LinkCosts) -> IntArray:
        """The tree that is the cheapest by these costs."""

    @abstractmethod
    def _along(self, links: IntArray, own: LinkCosts) -> Route:
        """The route along a tree over some links of the subgraph, with its best root."""


@dataclass(frozen=True)
class Tree(_TreeScheme):
    """Reduce along the minimum spanning tree to its best root, and broadcast back.

    Attributes:
        medium: of the subgraph's devices; it decides the root.
        rule: whose batteries the tree spares, instead of the joules of all; None for nobody's.
    """

    def _least(self, costs: LinkCosts) -> IntArray:
        """The minimum spanning tree."""
        graph = self.graph
        return spanning_tree(graph.edges, self.whole(costs).weight(), graph.devices)

    def _along(self, links: IntArray, own: LinkCosts) -> Route:
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

    def summed(self, step: int, to: int) -> Summed:
        """On the way up a sum, on the way down the mean."""
        return Summed(0, 1, 1.0 if step < self._up else self._count)

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
    graph, bits, width = conditions.graph, conditions.bits, conditions.width
    wanted, rule = conditions.options.tree, None
    if wanted in ("fair", "rotate") and _FEWEST_SPARED <= graph.devices <= _SEARCHED:
        rule = _rule(conditions, wanted)
    return Tree(TREE, reason, graph, bits, conditions.own_medium, width=width, rule=rule)


TREE = SCHEMES.register(
    SchemeKind(
        "tree",
        "the minimum spanning tree: sums go up to a root, the mean comes back",
        _ready,
        words="along a tree",
        floods_costs=True,
        parameters=("tree", "tree_slack"),
        advised=True,
        quantises=True,
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

    def summed(self, step: int, to: int) -> Summed:
        """To the parent a chunk of a sum, to children one of the mean."""
        times = 1.0 if to in self._up else self._count
        return Summed(step - self._to[to], self.chunks, times)

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


@dataclass(frozen=True)
class TreeChunked(_TreeScheme):
    """Reduce along a spanning tree in chunks to its best root, and broadcast back in chunks.

    The weight and the number of chunks are chosen once, for the costs that were forecast.

    Attributes:
        medium: of the subgraph's devices; it decides the root.
        chunks: number of chunks.
        weight_w: joules that a second on a link is worth in the choice of the tree; 0 for the
            minimum spanning tree.
        fixed: was the number of chunks asked for?
        rule: whose batteries the tree spares, instead of the joules of all; None for nobody's.
    """

    chunks: int
    weight_w: float = 0.0
    fixed: bool = False

    def _own(self, costs: LinkCosts) -> LinkCosts:
        return self.graph.own(costs)

    def _least(self, costs: LinkCosts) -> IntArray:
        """The tree that is the cheapest by these costs, seconds weighed in."""
        graph = self.graph
        return weighted_tree(graph.edges, self.whole(costs), graph.devices, self.weight_w).links

    def _along(self, links: IntArray, own: LinkCosts) -> Route:
        graph, chunks = self.graph, self.chunks
        route = chunked_tree_route(graph.edges, links, own, graph.devices, self.bits, self.medium)
        if self.medium.turns and not self.fixed and chunks > 1:
            # Where one device limits the pace, turns between chunks may cost more than they save.
            seconds = pipelined_s(route, own, graph.devices, self.medium)
            chunks = chunks if seconds(chunks) <= seconds(1) else 1
        each = np.full_like(route.bits, self.bits_in(chunks))
        return graph.in_whole(replace(route, bits=each, chunks=chunks))

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


_FAIRER = 0.95  # of the worst share, at most, so that a fair tree is worth its joules
_SAME_S = 1.01  # of the seconds, at most
_CHOSEN, _SEARCHED = 20_000, 200_000  # devices up to which fair trees are tried, and searched for


def _rule(conditions: Conditions, name: str) -> TreeRule:
    battery_j = conditions.battery_j[conditions.graph.members]
    return TreeRule(name, battery_j, conditions.options.tree_slack)


def _spared(
    conditions: Conditions, least: _Candidate
) -> tuple[TreeRule | None, _Candidate, list[str]]:
    """Whose batteries a pipelined tree spares, its tree (the first of several), and the reason."""
    wanted, graph = conditions.options.tree, conditions.graph
    auto = wanted == "auto"
    if wanted == "least" or graph.devices < _FEWEST_SPARED:
        return None, least, []
    if graph.devices > (_CHOSEN if auto else _SEARCHED):
        said = f"plan.tree: {graph.devices:,} devices are too many to look for a fair tree"
        return None, least, [said]
    if auto and conditions.medium.broadcast:  # what a device pays depends on the root
        return None, least, []
    rule, own = _rule(conditions, "fair" if auto else wanted), graph.own(conditions.costs)
    whole = own.for_messages(conditions.bits)
    spanning = partial(spanning_tree, graph.edges, devices=graph.devices)
    links = rule.kept(
        conditions.costs, lambda: rule.trees(graph.edges, whole, spanning, least.tree.links)
    )
    tried = [_candidate(conditions, own, replace(least.tree, links=one)) for one in links]
    battery_j = rule.battery_j
    spent_j = np.mean([one.spent_j for one in tried], axis=0)
    share = _largest(spent_j, battery_j) / _largest(least.spent_j, battery_j)
    joules = float(spent_j.sum() / least.spent_j.sum())
    slower = max(one.seconds for one in tried) > _SAME_S * least.seconds
    if auto and (share > _FAIRER or joules > 1.0 + conditions.options.tree_slack or slower):
        return None, least, []
    what = f"{len(tried)} trees in turn" if len(tried) > 1 else "a fair tree"
    said = (
        f"{what}: the largest share of a battery is {100 * (1 - share):.2g} % smaller than on the "
        f"tree of least joules, for {100 * (joules - 1):.2g} % more joules"
    )
    return rule, replace(tried[0], tree=least.tree), [said]


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
    rule, best, spares = _spared(conditions, front[-1])
    said = [reason, f"{best.chunks:,} chunks of {bits / best.chunks:,.0f} bits", *spares]
    if best is not front[0] and rule is None:
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
        width=conditions.width,
        rule=rule,
    )


TREE_CHUNKED = SCHEMES.register(
    SchemeKind(
        "tree-chunked",
        "a spanning tree that carries the parameters in chunks, one behind another",
        _ready_in_chunks,
        words="along a tree in chunks",
        floods_costs=True,
        parameters=("chunks", "tree", "tree_slack"),
        advised=True,
        quantises=True,
    )
)
