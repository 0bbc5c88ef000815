"""Spanning trees: of least weight, of least joules × seconds, and pipelined in chunks.

In a pipelined tree a device forwards chunk c to its parent as soon as it has c from all of its
children, and the root sends chunk c of the mean down as soon as it has it. Every link carries the
whole vector once each way, whatever the number of chunks, so the joules are the tree's but for more
packets and messages; the seconds fall from those of the longest path towards those of the slowest
link, until packets and messages cost more than the pipeline saves (notes: pipelined-tree).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from joulemesh.aggregation.play import frame, in_frames_s, in_slots, paths, shared_s, turns_s
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.world.links import LinkCosts, packets_of

__all__ = [
    "FRAME_BITS",
    "SMALL_FRAME_BITS",
    "WeightedTree",
    "best_root",
    "branch_sizes",
    "choose_chunks",
    "chunked_tree_route",
    "device_joules",
    "fewest_chunks",
    "hull_of_trees",
    "least_s",
    "link_seconds",
    "most_chunks",
    "pipelined_s",
    "root_latencies_s",
    "shortest_path_tree",
    "spanning_tree",
    "tree_route",
    "weighted_tree",
]

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
