"""Devices that come back: each takes up the parameters of a neighbour before it takes part again.

The simulation and a deployed fleet follow this one rule, so that both continue alike.
"""

from __future__ import annotations

__all__ = ["gift_route", "givers", "origins"]

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route

IntArray = NDArray[np.int64]


def givers(
    left_j: Mapping[int, float], newcomers: Collection[int], links: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Each newcomer with the neighbour that gives to it, which may be a newcomer served before.

    Of several the one with the most joules left gives, since a gift has to be paid for.

    Args:
        left_j: joules that each device has left, newcomers included.
        newcomers: who has been away.
        links: that carry something, as pairs of devices.

    >>> givers({0: 5.0, 1: 9.0, 2: 1.0, 3: 1.0}, {2, 3}, [(0, 2), (1, 2), (2, 3)])
    ((2, 1), (3, 2))
    """
    near: dict[int, list[int]] = {device: [] for device in sorted(left_j)}
    for a, b in links:
        if a in near and b in near:
            near[a].append(b)
            near[b].append(a)
    found: dict[int, int] = {}
    edge = left_j.keys() - set(newcomers)
    while edge:
        reached: dict[int, int] = {}
        for giver in sorted(edge, key=lambda one: (-left_j[one], one)):
            for other in sorted(near[giver]):
                if other in newcomers and other not in found:
                    reached.setdefault(other, giver)
        found |= reached
        edge = set(reached)
    return tuple(sorted(found.items()))


def origins(gifts: Collection[tuple[int, int]]) -> dict[int, int]:
    """The device whose parameters each newcomer ends up with.

    >>> origins([(2, 1), (3, 2)])
    {2: 1, 3: 1}
    """
    giver, found = dict(gifts), dict(gifts)
    for newcomer in giver:
        while found[newcomer] in giver:
            found[newcomer] = giver[found[newcomer]]
    return found


def gift_route(gifts: Collection[tuple[int, int]], edges: IntArray, bits: float) -> Route:
    """What is sent so that every newcomer has its gift.

    Args:
        gifts: (newcomer, giver), at least one.
        edges: int64 [E, 2]: the graph's links, sorted.
        bits: of the model.

    >>> route = gift_route([(2, 1), (3, 2)], np.array([[0, 2], [1, 2], [2, 3]]), 8.0)
    >>> list(route.messages())
    [(0, 1, 2, 8.0), (1, 2, 3, 8.0)]
    """
    giver = dict(gifts)
    depth: dict[int, int] = {}
    for newcomer in giver:
        hops, device = 0, giver[newcomer]
        while device in giver:
            hops, device = hops + 1, giver[device]
        depth[newcomer] = hops
    order = sorted(giver, key=lambda newcomer: (depth[newcomer], newcomer))
    pairs = np.array([sorted((giver[one], one)) for one in order], np.int64)
    span = int(edges.max()) + 1
    links = np.searchsorted(edges @ [span, 1], pairs @ [span, 1])
    used, edge = np.unique(links, return_inverse=True)
    return Route.build(
        "gift",
        edges=edges[used],
        edge=edge,
        forward=np.array([giver[one] < one for one in order]),
        step=np.array([depth[one] for one in order]),
        bits=bits,
        repeats=1,
        uses=1,
    ).on_links(used)
