"""Trees between the least joules and the fastest links.

The minimum spanning tree takes a link for its joules, however slow it is; where transmit powers
differ, links that cost somewhat more may be much faster. Each weight λ in watts on the seconds of
a bit gives one spanning tree, the minimum of E_ij + E_ji + λ·(1/r_ij + 1/r_ji) over its links.
Those trees are the corners of the lower convex hull of (joules, seconds) over all spanning trees,
both summed over the links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import IntArray
from joulemesh.aggregation.tree import spanning_tree
from joulemesh.world.links import LinkCosts

__all__ = ["WeightedTree", "device_joules", "hull_of_trees", "link_seconds", "weighted_tree"]

FloatArray = NDArray[np.float64]

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
    """The spanning tree that is the cheapest if a second is worth ``weight_w`` joules.

    >>> edges, second = np.array([[0, 1], [0, 2], [1, 2]]), np.array([1.0, 1.0, 9.0])
    >>> costs = LinkCosts(second, second, np.array([3.0, 1.0, 2.0]), np.array([3.0, 1.0, 2.0]))
    >>> [weighted_tree(edges, costs, 3, weight).links.tolist() for weight in (0.0, 1.0)]
    [[1, 2], [0, 1]]
    """
    joules, seconds = costs.weight(), link_seconds(costs)
    if np.isinf(weight_w):
        links = spanning_tree(edges, seconds, devices)
    else:  # exactly the joules' own order, if the seconds do not count
        links = spanning_tree(edges, joules + weight_w * seconds if weight_w else joules, devices)
    return WeightedTree(weight_w, links, float(joules[links].sum()), float(seconds[links].sum()))


def hull_of_trees(
    edges: IntArray, costs: LinkCosts, devices: int, *, most_joules: float = np.inf
) -> list[WeightedTree]:
    """The trees of all weights λ, from the fewest joules on: the corners of the lower hull.

    Args:
        edges: int [E, 2]: the graph's links, sorted.
        costs: price of one bit on each of them.
        devices: number of devices.
        most_joules: trees that take more per bit are left out.

    Returns:
        At most 16 trees: ascending joules, descending seconds.

    >>> edges, second = np.array([[0, 1], [0, 2], [1, 2]]), np.array([1.0, 1.0, 9.0])
    >>> costs = LinkCosts(second, second, np.array([3.0, 1.0, 2.0]), np.array([3.0, 1.0, 2.0]))
    >>> [(tree.joules, tree.seconds) for tree in hull_of_trees(edges, costs, 3)]
    [(6.0, 20.0), (8.0, 4.0)]
    """
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

    >>> costs = LinkCosts(*np.array([[1.0, 2.0]] * 2), *np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> device_joules(np.array([[0, 1], [1, 2]]), np.array([0, 1]), costs, 3).tolist()
    [1.0, 5.0, 4.0]
    """
    return costs.take(links).device_j(edges[links], devices)
