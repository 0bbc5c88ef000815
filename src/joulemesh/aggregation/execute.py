"""Routes played out: every message carried from its sender to its receiver, one by one.

Slow and obvious. It shows that a route does what its mixing matrix says, and it is what a device
would do in the field.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route, Transmission
from joulemesh.errors import ScenarioError

__all__ = ["execute"]

FloatArray = NDArray[np.float64]


def execute(route: Route, values: FloatArray) -> FloatArray:
    """Carry out an exchange.

    Args:
        route: of the scheme tree, ring, ring-chunked, gossip or metropolis.
        values: float [N, P]: each device's parameters; devices that are not on the route keep
            theirs.

    Returns:
        float [N, P]: what each device holds afterwards.

    >>> from joulemesh.aggregation.ring import ring_route
    >>> ring = ring_route([0, 1, 2], np.array([[0, 1], [0, 2], [1, 2]]), bits=64.0)
    >>> execute(ring, np.array([[0.0], [3.0], [6.0]])).ravel().tolist()
    [3.0, 3.0, 3.0]
    """
    steps = [list(group) for _, group in groupby(route.messages(), key=lambda m: m[0])]
    if route.scheme == "tree":
        return _tree(steps, values, route)
    if route.scheme == "ring":
        return _ring(steps, values, route)
    if route.scheme == "ring-chunked":
        return _ring_chunked(steps, values, route)
    if route.scheme == "gossip":
        return _gossip(steps, values)
    if route.scheme == "metropolis":
        return _metropolis(steps, values, route)
    raise ScenarioError(f"there is no way to carry out a {route.scheme!r} route message by message")


Steps = list[list[Transmission]]


def _members(route: Route) -> NDArray[np.int64]:
    return np.unique(route.edges)


def _tree(steps: Steps, values: FloatArray, route: Route) -> FloatArray:
    held = values.copy()
    for step in steps[: len(steps) // 2]:  # up: sums gather at the root
        for _, sender, receiver, _ in step:
            held[receiver] += held[sender]
    held[route.root] /= len(_members(route))
    for step in steps[len(steps) // 2 :]:  # down: the mean spreads
        for _, sender, receiver, _ in step:
            held[receiver] = held[sender]
    return held


def _ring(steps: Steps, values: FloatArray, route: Route) -> FloatArray:
    held = values.copy()
    for step in steps:  # each passes its partial sum on and starts the next from its own
        before = held.copy()
        for _, sender, receiver, _ in step:
            held[receiver] = before[sender] + values[receiver]
    held[_members(route)] /= len(_members(route))
    return held


def _ring_chunked(steps: Steps, values: FloatArray, route: Route) -> FloatArray:
    held = values.copy()
    order = [sender for _, sender, _, _ in steps[0]]
    count = len(order)
    position = {device: k for k, device in enumerate(order)}
    chunks = np.array_split(np.arange(values.shape[1]), count)
    for turn, step in enumerate(steps):
        before = held.copy()
        for _, sender, receiver, _ in step:
            if turn < count - 1:  # reduce-scatter: add up
                chunk = chunks[(position[sender] - turn) % count]
                held[receiver, chunk] += before[sender, chunk]
            else:  # all-gather: copy what is complete
                chunk = chunks[(position[sender] + 1 - (turn - count + 1)) % count]
                held[receiver, chunk] = before[sender, chunk]
    held[order] /= count
    return held


def _gossip(steps: Steps, values: FloatArray) -> FloatArray:
    held = values.copy()
    for step in steps:  # pairs: each takes the mean of its own and what it hears
        before = held.copy()
        for _, sender, receiver, _ in step:
            held[receiver] = 0.5 * (before[receiver] + before[sender])
    return held


def _metropolis(steps: Steps, values: FloatArray, route: Route) -> FloatArray:
    held = values.copy()
    degree = np.bincount(route.edges.ravel(), minlength=len(values))
    for step in steps:
        before = held.copy()
        for _, sender, receiver, _ in step:
            weight = 1.0 / (1.0 + max(degree[sender], degree[receiver]))
            held[receiver] += weight * (before[sender] - before[receiver])
    return held
