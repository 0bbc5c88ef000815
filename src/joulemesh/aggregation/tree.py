"""The minimum spanning tree (Algorithm 2, case 1 of Theorem 3): reduce to a root, broadcast back.

A device's energy does not depend on the root (notes: price-of-an-exchange). The critical path does,
by up to a factor of two (notes: critical-path-of-a-tree), so the root that minimises it is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from joulemesh.aggregation.medium import ORTHOGONAL, Medium
from joulemesh.aggregation.on_air import levelled
from joulemesh.aggregation.rooted import Rooted, half_duplex_s, hang, link_graph
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.slots import shared_s
from joulemesh.world.links import LinkCosts

__all__ = [
    "best_root",
    "branch_sizes",
    "root_latencies_s",
    "shortest_path_tree",
    "spanning_tree",
    "tree_route",
]

FloatArray = NDArray[np.float64]

_CHEAPEST = 4  # links for each device that are tried first
_FEW = 8  # times as many links pay for a look at which of them are the cheapest
_EVERY_ROOT = 256  # up to here every root is tried in half duplex, where no closed form exists
_EVERY_PLAYED = 32  # the same where each root is a schedule of its own
_SOME_PLAYED = 2_000  # beyond, schedules are too dear to compare


def spanning_tree(edges: IntArray, weight: FloatArray, devices: int) -> IntArray:
    """Kruskal's minimum spanning tree, as sorted positions in ``edges`` (which must be sorted).

    >>> edges = np.array([[0, 1], [0, 2], [1, 2]])
    >>> spanning_tree(edges, np.array([3.0, 1.0, 2.0]), 3).tolist()
    [1, 2]
    """
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
    """Reduce along the tree to its best root, then broadcast back along the same links.

    Args:
        graph_edges: int [E, 2]: the graph's links.
        links: positions in ``graph_edges`` of the tree's links.
        costs: price of one bit on every link of the graph.
        devices: number of devices of the graph.
        bits: size of the parameter vector.
        medium: of the graph's devices.
    """
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
    """Number of devices in the branch of each device of a tree, itself included.

    >>> route = Route.build("tree", edges=[[0, 1], [1, 2]], edge=[0, 1, 1, 0], step=[0, 1, 2, 3],
    ...                     forward=[True, True, False, False], bits=8.0, repeats=1, uses=2)
    >>> branch_sizes(route.rooted(2))
    {0: 1, 1: 2, 2: 3}
    """
    sizes = dict.fromkeys(np.unique(route.edges).tolist(), 1)
    up = route.step < route.steps // 2
    for sender, receiver in zip(
        route.sender[up].tolist(), route.receiver[up].tolist(), strict=True
    ):
        sizes[receiver] += sizes[sender]
    return sizes
