"""The minimum spanning tree (Algorithm 2, case 1 of Theorem 3): reduce to a root, broadcast back.

A device's energy does not depend on the root (notes: price-of-an-exchange). The critical path does,
by up to a factor of two (notes: critical-path-of-a-tree), so the root that minimises it is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, dijkstra, minimum_spanning_tree

from joulemesh.aggregation.medium import ORTHOGONAL, Medium
from joulemesh.aggregation.on_air import levelled
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.slots import shared_s
from joulemesh.world.links import LinkCosts

__all__ = [
    "Rooted",
    "best_root",
    "branch_sizes",
    "half_duplex_order",
    "half_duplex_s",
    "hang",
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
        tree = minimum_spanning_tree(_graph(edges[used], rank[used], devices)).tocoo()
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


def _graph(edges: IntArray, weight: FloatArray, devices: int) -> csr_array:
    """Links and their weights as SciPy's graph; no link may be there twice.

    SciPy's own way, through a list of coordinates, takes longer than the searches in a small tree.
    """
    key = edges[:, 0] * devices + edges[:, 1]
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key)
        edges, weight = edges[order], weight[order]
    begins = np.zeros(devices + 1, np.int32)
    np.cumsum(np.bincount(edges[:, 0], minlength=devices), out=begins[1:])
    to = edges[:, 1].astype(np.int32)
    return csr_array((weight, to, begins), shape=(devices, devices))


def shortest_path_tree(edges: IntArray, costs: LinkCosts, devices: int) -> IntArray:
    """Links of a quick tree: the shortest paths in time from the spanning tree's best root.

    It trades energy for time; used when the minimum spanning tree misses a deadline in a fade.
    """
    links = spanning_tree(edges, costs.weight(), devices)
    root = best_root(edges[links], costs.take(links), devices, ORTHOGONAL)
    seconds = costs.forward_s + costs.backward_s
    graph = _graph(edges, seconds, devices)
    _, parent = dijkstra(graph, directed=False, indices=[root], return_predecessors=True)
    parent = parent[0]
    child = np.flatnonzero(parent >= 0)
    ends = np.sort(np.stack([child, parent[child]], axis=1).astype(np.int64), axis=1)
    key = edges[:, 0] * devices + edges[:, 1]
    return np.sort(np.searchsorted(key, ends[:, 0] * devices + ends[:, 1]))


@dataclass(frozen=True)
class Rooted:
    """A tree hung from a device: ``levels[d]`` are the devices at depth d."""

    parent: IntArray  # [N], −1 at the root and for devices outside the tree
    link: IntArray  # [N], position in the tree's edges of the link to the parent
    up: FloatArray  # [N], seconds per bit from the device to its parent
    down: FloatArray  # [N], seconds per bit from the parent to the device
    levels: list[IntArray]


def hang(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> Rooted:
    """The tree of some links, hung from one of its devices.

    Args:
        edges: int [E', 2]: the tree's links.
        costs: price of one bit on each of them.
        devices: number of devices of the graph.
        root: the device to hang it from.

    >>> costs = LinkCosts(*np.ones((4, 2)))
    >>> [sorted(level.tolist()) for level in hang(np.array([[0, 1], [1, 2]]), costs, 3, 1).levels]
    [[1], [0, 2]]
    """
    found = breadth_first_order(_graph(edges, np.ones(len(edges)), devices), root, directed=False)
    order, parent = found[0].astype(np.int64), np.maximum(found[1], -1).astype(np.int64)
    # In breadth-first order a level is a run: a device's depth is one more than its parent's.
    position = np.full(devices, -1)
    position[order] = np.arange(len(order))
    starts, levels = [0, 1], [order[:1]]
    parent_position = position[parent[order]]
    while starts[-1] < len(order):
        end = int(np.searchsorted(parent_position[1:], starts[-1], side="left")) + 1
        levels.append(order[starts[-1] : end])
        starts.append(end)
    link, toward = np.full(devices, -1), np.zeros(devices, np.bool_)
    for column in (0, 1):  # the child is one end of each link
        child = edges[:, column]
        is_child = parent[child] == edges[:, 1 - column]
        link[child[is_child]] = np.flatnonzero(is_child)
        toward[child[is_child]] = column == 0
    return Rooted(
        parent,
        link,
        up=np.where(toward, costs.forward_s[link], costs.backward_s[link]),
        down=np.where(toward, costs.backward_s[link], costs.forward_s[link]),
        levels=levels,
    )


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


def half_duplex_s(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> float:
    """Critical path in seconds per bit when a device serves one link at a time.

    Up: children are received in the order in which they are ready. Down: the child with the most
    work below it is served first. Both orders are optimal (notes: critical-path-of-a-tree).
    """
    up, down, _, _ = _in_turns(hang(edges, costs, devices, root), devices)
    return up[root] + down[root]


def half_duplex_order(
    edges: IntArray, costs: LinkCosts, devices: int, root: int
) -> list[tuple[int, int]]:
    """The messages of a tree in the order of `half_duplex_s`: (sender, receiver).

    If each begins when both of its ends are free, they end when that says.

    >>> costs = LinkCosts(*np.array([[3.0, 1.0, 1.0]] * 4))
    >>> half_duplex_order(np.array([[0, 1], [0, 2], [2, 3]]), costs, 4, 0)
    [(3, 2), (1, 0), (2, 0), (0, 1), (0, 2), (2, 3)]
    """
    tree = hang(edges, costs, devices, root)
    _, _, gathered, served = _in_turns(tree, devices)
    levels = [level.tolist() for level in tree.levels]
    upwards = [
        (child, device)
        for level in reversed(levels)
        for device in level
        for child in gathered.get(device, ())
    ]
    downwards = [
        (device, child) for level in levels for device in level for child in served.get(device, ())
    ]
    return [*upwards, *downwards]


_Order: TypeAlias = dict[int, list[int]]  # the children of each device


def _in_turns(tree: Rooted, devices: int) -> tuple[list[float], list[float], _Order, _Order]:
    """Seconds per bit from below each device and to all below it; the orders of its children."""
    children: _Order = {}
    for level in tree.levels[1:]:
        for child in level.tolist():
            children.setdefault(int(tree.parent[child]), []).append(child)
    up, down = [0.0] * devices, [0.0] * devices
    gathered: _Order = {}
    served: _Order = {}
    for level in reversed(tree.levels):
        for device in level.tolist():
            own = children.get(device, ())
            clock = 0.0
            gathered[device] = sorted(own, key=up.__getitem__)
            for child in gathered[device]:
                clock = max(clock, up[child]) + float(tree.up[child])
            up[device] = clock
            busy, last = 0.0, 0.0
            served[device] = sorted(own, key=down.__getitem__, reverse=True)
            for child in served[device]:
                busy += float(tree.down[child])
                last = max(last, busy + down[child])
            down[device] = last
    return up, down, gathered, served


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
    edges, tree_costs = graph_edges[links], costs.take(links)
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
