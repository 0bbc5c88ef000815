"""A tree hung from its root: who is above whom, and the best order of its messages.

Where a device serves one link at a time, the order of its children decides how long an exchange
takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from joulemesh.aggregation.route import IntArray
from joulemesh.world.links import LinkCosts

__all__ = ["Rooted", "half_duplex_order", "half_duplex_s", "hang", "link_graph"]

FloatArray = NDArray[np.float64]


def link_graph(edges: IntArray, weight: FloatArray, devices: int) -> csr_array:
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


@dataclass(frozen=True, eq=False)
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
    found = breadth_first_order(
        link_graph(edges, np.ones(len(edges)), devices), root, directed=False
    )
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
    [(3, 2), (1, 0), (2, 0), (0, 2), (0, 1), (2, 3)]
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
