"""Rings: finding one in a graph, and the two ways of averaging along it.

``ring`` is the paper's: every device passes on whole vectors, N−1 times (Case 2 of Theorem 3).
``ring-chunked`` is Ring-AllReduce proper (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2),
2009): vectors in N chunks, N−1 steps of reduce-scatter and N−1 of all-gather, which is N/2 times
cheaper. Both give every device the exact mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from joulemesh.aggregation.ring_exact import exact_cycle, neighbours, obstacle
from joulemesh.aggregation.ring_heuristic import grow_cycle
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.errors import ScenarioError

__all__ = ["RingSearch", "chunked_route", "find_ring", "ring_route"]


@dataclass(frozen=True, eq=False)
class RingSearch:
    """What a search for a ring through all devices came to.

    Attributes:
        order: int [N]: the devices in ring order, or None.
        exhausted: with ``order`` None: True when the graph has no ring, False when none was found
            within the limit.
        visited: how many search steps were made (devices looked at, links chosen or cut).
        reason: one line: where the ring came from, or why there is none.
        device: whom the reason calls ``{device}``, or None.
    """

    order: IntArray | None
    exhausted: bool
    visited: int
    reason: str
    device: int | None = None


def find_ring(
    edges: IntArray, devices: int, *, hint: ArrayLike | None = None, limit: int = 200_000
) -> RingSearch:
    """Find a ring through all devices (a Hamiltonian cycle), with bounded effort.

    The result depends on the arguments alone; nothing in it is random.

    Args:
        edges: int [E, 2], i < j, unique, sorted.
        devices: number of devices N.
        hint: an order that is believed to be a ring; used when it is one, else ignored.
        limit: about how many search steps may be made before giving up.

    Returns:
        The search's outcome.

    >>> square = np.array([[0, 1], [0, 3], [1, 2], [2, 3]])
    >>> find_ring(square, 4).order.tolist()
    [0, 1, 2, 3]
    >>> find_ring(square[:3], 4).reason
    '{device} has 1 link, a ring needs 2'
    """
    edges = _checked(edges, devices)
    if hint is not None:
        order = np.asarray(hint, np.int64).reshape(-1)
        if _is_ring(order, edges, devices):
            return RingSearch(order, False, 0, "the topology names a ring")
    found = obstacle(edges, devices)
    if found is not None:
        return RingSearch(None, True, 0, *found)
    beside = neighbours(edges, devices)
    grown, visited = grow_cycle(beside, limit // 2)
    if grown is not None:
        return RingSearch(grown, False, visited, f"a ring was found in {visited} steps")
    cycle, exhausted, more = exact_cycle(beside, limit - visited)
    visited += more
    if cycle is not None:
        return RingSearch(cycle, False, visited, f"a ring was found in {visited} steps")
    if exhausted:
        why = f"a complete search in {visited} steps shows that there is none"
        return RingSearch(None, True, visited, why)
    return RingSearch(None, False, visited, f"no ring was found within {limit} steps")


def ring_route(order: ArrayLike, edges: IntArray, bits: float) -> Route:
    """The paper's ring: each device passes a whole vector to the next, N−1 times.

    In the first step it passes on its own; in the others, what came in the step before.

    Args:
        order: int [N]: the devices in ring order.
        edges: int [E, 2]: the graph, i < j, unique, sorted.
        bits: size of the parameter vector.

    Returns:
        The route: N transmissions in one step, played N−1 times.

    >>> route = ring_route([0, 2, 1], np.array([[0, 1], [0, 2], [1, 2]]), bits=8.0)
    >>> [(sender, receiver) for _, sender, receiver, _ in route.messages()]
    [(0, 2), (2, 1), (1, 0), (0, 2), (2, 1), (1, 0)]
    """
    size = np.asarray(order).size
    return _along(order, edges, "ring", bits, repeats=size - 1, uses=size - 1)


def chunked_route(order: ArrayLike, edges: IntArray, bits: float) -> Route:
    """Ring-AllReduce: reduce-scatter, then all-gather, of one N-th of the vector at a time.

    Args:
        order: int [N]: the devices in ring order.
        edges: int [E, 2]: the graph, i < j, unique, sorted.
        bits: size of the parameter vector.

    Returns:
        The route: N transmissions of ``bits / N`` in one step, played 2(N−1) times.

    >>> route = chunked_route([0, 2, 1], np.array([[0, 1], [0, 2], [1, 2]]), bits=9.0)
    >>> route.count, float(route.bits[0])
    (12, 3.0)
    """
    size = max(1, np.asarray(order).size)
    repeats = 2 * (size - 1)
    return _along(order, edges, "ring-chunked", bits / size, repeats=repeats, uses=repeats / size)


def _along(
    order: ArrayLike, edges: IntArray, scheme: str, bits: float, *, repeats: int, uses: float
) -> Route:
    senders = np.asarray(order, np.int64).reshape(-1)
    links = _links(senders, edges)
    lost = np.flatnonzero(links < 0)
    if len(senders) < 3 or len(np.unique(senders)) != len(senders) or len(lost):
        fault = f"no link from device {senders[lost[0]]} to the next" if len(lost) else "no cycle"
        raise ScenarioError(
            f"the order of {len(senders)} devices is not a ring of the graph ({fault}); "
            "take the order that find_ring gives"
        )
    return Route.build(
        scheme,
        edges=edges[links],
        edge=np.arange(len(senders)),
        forward=senders < np.roll(senders, -1),
        step=0,
        bits=bits,
        repeats=repeats,
        uses=uses,
    ).on_links(links)


def _links(order: IntArray, edges: IntArray) -> IntArray:
    """int [N]: the row of the link from each device of the order to the next, −1 where none."""
    following = np.roll(order, -1)
    if not len(edges):
        return np.full(len(order), -1, np.int64)
    base = int(max(edges.max(), order.max(initial=0))) + 1
    keys = edges[:, 0] * base + edges[:, 1]
    wanted = np.minimum(order, following) * base + np.maximum(order, following)
    rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[rows] == wanted, rows, -1)


def _is_ring(order: IntArray, edges: IntArray, devices: int) -> bool:
    return (
        devices >= 3
        and np.array_equal(np.sort(order), np.arange(devices))
        and bool(np.all(_links(order, edges) >= 0))
    )


def _checked(edges: IntArray, devices: int) -> IntArray:
    edges = np.asarray(edges, np.int64).reshape(-1, 2)
    wrong = (edges[:, 0] < 0) | (edges[:, 0] >= edges[:, 1]) | (edges[:, 1] >= devices)
    if np.any(wrong):
        i, j = edges[np.argmax(wrong)].tolist()
        raise ScenarioError(
            f"link ({i}, {j}) does not fit a graph of {devices} devices; "
            f"name two devices i < j in 0..{devices - 1}"
        )
    return edges
