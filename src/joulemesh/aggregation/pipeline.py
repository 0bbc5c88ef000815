"""The pipelined tree: a spanning tree that carries the parameters in chunks, one behind another.

A device forwards chunk c to its parent as soon as it has c from all of its children, and the root
sends chunk c of the mean down as soon as it has it. Every link carries the whole vector once each
way, whatever the number of chunks, so the joules are the tree's but for more packets and messages;
the seconds fall from those of the longest path towards those of the slowest link, until packets and
messages cost more than the pipeline saves (notes: pipelined-tree).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.medium import Medium
from joulemesh.aggregation.on_air import levelled, on_air, route_j
from joulemesh.aggregation.rooted import half_duplex_s, hang
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.slots import frame, in_frames_s, in_slots
from joulemesh.aggregation.tree import tree_route
from joulemesh.world.links import LinkCosts, packets_of

__all__ = [
    "FRAME_BITS",
    "SMALL_FRAME_BITS",
    "Paths",
    "choose_chunks",
    "chunked_tree_route",
    "fewest_chunks",
    "least_s",
    "most_chunks",
    "paths",
    "pipelined_s",
    "turns_s",
]

FloatArray = NDArray[np.float64]

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

    >>> most_chunks(159_010 * 32.0, 20), most_chunks(60_000.0, 20), most_chunks(100.0, 20)
    (424, 20, 1)
    """
    return max(1, int(bits // packet_bits), min(devices, int(bits // SMALL_FRAME_BITS)))


# Orthogonal links -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Paths:
    """Sum and maximum of the seconds per bit on the path between the root and every device.

    Attributes:
        up_sum: float64 [A]: of the links towards the root.
        up_max: float64 [A].
        down_sum: float64 [A]: of the links from the root.
        down_max: float64 [A].
    """

    up_sum: FloatArray
    up_max: FloatArray
    down_sum: FloatArray
    down_max: FloatArray

    def seconds(self, bits: float, chunks: int) -> float:
        """Critical path of reduce plus broadcast in chunks, where links work at the same time.

        A chain of links that each take a constant time per chunk is done with C chunks after the
        sum of those times and C − 1 times the largest (a flow line). The last chunk is waited for
        along one chain, from some device up to the root and down to some other. Since the maximum
        of a chain is that of its way up or of its way down, two passes find the longest.

        >>> one = np.array([1.0])
        >>> Paths(one, one, one, one).seconds(8.0, 1), Paths(one, one, one, one).seconds(8.0, 4)
        (16.0, 10.0)
        """
        more = chunks - 1
        up = np.max(self.up_sum + more * self.up_max) + np.max(self.down_sum)
        down = np.max(self.down_sum + more * self.down_max) + np.max(self.up_sum)
        return float(max(up, down) * (bits / chunks))


def paths(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> Paths:
    """The paths of a tree, from its links, their costs and its root.

    >>> costs = LinkCosts(*np.array([[1.0, 2.0]] * 4))
    >>> paths(np.array([[0, 1], [1, 2]]), costs, 3, 0).up_sum.tolist()
    [0.0, 1.0, 3.0]
    """
    tree = hang(edges, costs, devices, root)
    total, most = np.zeros((2, devices)), np.zeros((2, devices))
    each = np.stack([tree.up, tree.down])
    for level in tree.levels[1:]:
        above = tree.parent[level]
        total[:, level] = total[:, above] + each[:, level]
        most[:, level] = np.maximum(most[:, above], each[:, level])
    return Paths(total[0], most[0], total[1], most[1])


# Half duplex ------------------------------------------------------------------------------------


def turns_s(route: Route, seconds: FloatArray, devices: int) -> float:
    """Critical path of a pipelined route where a device serves one link at a time.

    Messages take both of their ends, one after another in the order of `Route.messages`. Those on
    links that share no device do not meet, and are played at once: the order is the same.

    Args:
        route: the pipelined route.
        seconds: float64 [M]: time of each transmission of the pattern, all chunks together.
        devices: number of devices of the graph.
    """
    lanes = _lanes(route, seconds / route.chunks)
    ready, last = np.zeros(devices), np.arange(route.length)
    windows = [
        np.searchsorted(lane.step, [last - route.chunks + 1, last + 1]).T.tolist() for lane in lanes
    ]
    for step in range(route.length):
        for lane, window in zip(lanes, windows, strict=True):
            low, high = window[step]
            if low < high:
                i, j = lane.ends[0, low:high], lane.ends[1, low:high]
                ready[i] = ready[j] = np.maximum(ready[i], ready[j]) + lane.seconds[low:high]
    return float(ready.max())


@dataclass(frozen=True, eq=False)
class _Lane:
    """Transmissions of the pattern on links that share no device, sorted by step."""

    step: IntArray
    ends: IntArray  # [2, m]
    seconds: FloatArray


def _lanes(route: Route, seconds: FloatArray) -> list[_Lane]:
    """The pattern in lanes, in the order in which they take turns within a step."""
    group = _disjoint_runs(route.edges)[route.edge]
    first = np.zeros(len(route.edge), np.bool_)
    first[np.unique(route.edge, return_index=True)[1]] = True
    # Both directions of a link have the same ends: the later one of the pattern comes second.
    order = np.lexsort((route.step, ~first, group))
    key = 2 * group[order] + ~first[order]
    cuts = np.flatnonzero(np.diff(key)) + 1
    sender, receiver = route.sender, route.receiver
    return [
        _Lane(route.step[rows], np.stack([sender[rows], receiver[rows]]), seconds[rows])
        for rows in np.split(order, cuts)
    ]


def _disjoint_runs(edges: IntArray) -> IntArray:
    """int [E']: number of the run of each link; the links of a run share no device."""
    runs = np.zeros(len(edges), np.int64)
    seen: dict[int, int] = {}
    run = 0
    for k, (i, j) in enumerate(edges.tolist()):
        if run in (seen.get(i), seen.get(j)):
            run += 1
        seen[i] = seen[j] = runs[k] = run
    return runs


def least_s(edges: IntArray, costs: LinkCosts, devices: int, bits: float, medium: Medium) -> float:
    """Seconds that no number of chunks goes below: of the slowest link, or the busiest device.

    Args:
        edges: int [E', 2]: the tree's links.
        costs: price of one bit on each of them.
        devices: number of devices of the graph.
        bits: size of the parameter vector.
        medium: of the graph's devices.

    >>> edges, costs = np.array([[0, 1], [1, 2]]), LinkCosts(*np.ones((4, 2)))
    >>> [least_s(edges, costs, 3, 12.0, Medium(duplex)) for duplex in ("orthogonal", "half")]
    [12.0, 48.0]
    """
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
    """Seconds of a pipelined tree as a function of its number of chunks.

    Args:
        route: along the tree, with any number of chunks.
        costs: price of one bit on every link of the graph.
        devices: number of devices of the graph.
        medium: of the graph's devices.

    >>> edges, costs = np.array([[0, 1], [1, 2]]), LinkCosts(*np.ones((4, 2)))
    >>> route = chunked_tree_route(edges, np.arange(2), costs, 3, 12.0, Medium())
    >>> seconds = pipelined_s(route, costs, 3, Medium())
    >>> [seconds(chunks) for chunks in (1, 2, 4, 12)]
    [24.0, 18.0, 15.0, 13.0]
    >>> seconds = pipelined_s(route, costs, 3, Medium("half"))  # device 1 is never idle
    >>> [seconds(chunks) for chunks in (1, 2, 4, 12)]
    [48.0, 48.0, 48.0, 48.0]
    """
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

    Args:
        route: along the tree, with any number of chunks.
        costs: price of one bit on every link of the graph, of a packet and of a message.
        devices: number of devices of the graph.
        medium: of the graph's devices.

    >>> edges, costs = np.array([[0, 1], [1, 2]]), LinkCosts(*np.full((4, 2), 1e-6))
    >>> route = chunked_tree_route(edges, np.arange(2), costs, 3, 1e6, Medium())
    >>> choose_chunks(route, costs, 3, Medium())
    46
    >>> from joulemesh.world.links import Framing
    >>> dear = costs.framed(edges, Framing(12_000.0, message_s=0.1))
    >>> choose_chunks(route, dear, 3, Medium())
    3
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
    """Numbers of chunks from 1 to ``most``: a geometric grid, and those that fill their packets.

    >>> _worth_trying(1000.0, 10, 100.0)
    [1, 2, 3, 4, 5, 6, 7, 9, 10]
    """
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

    >>> fewest_chunks(lambda chunks: 1.0 + 9.0 / chunks, 10_000, Medium())
    826
    >>> fewest_chunks(lambda chunks: 1.0 + 9.0 / chunks, 10_000, Medium("half"))
    826
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
