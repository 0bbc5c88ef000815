"""When the messages of an exchange are sent: the moments behind the seconds of its price.

The price list (`joulemesh.planning.pricing.route`) says how long an exchange takes. Here the same
rules say when each of its transmissions begins and ends; the last one ends with the exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.medium import Medium
from joulemesh.aggregation.on_air import OnAir, on_air
from joulemesh.aggregation.rooted import half_duplex_order
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.slots import frame, in_slots
from joulemesh.planning.pricing.route import edge_colours, followed, is_tree
from joulemesh.world.links import LinkCosts

__all__ = ["Moments", "moments"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Moments:
    """When the transmissions of a route are on the air, from the beginning of the exchange.

    The T transmissions of the pattern are sent P times: once in every play, or once for every
    chunk.

    Attributes:
        air: the transmissions of the pattern.
        ready_s: float64 [P, T]: from when on the sender holds what it sends.
        start_s: float64 [P, T].
        end_s: float64 [P, T].
        ordered: does the clock say when messages are sent? If not, the steps of the exchange share
            its time equally.
    """

    air: OnAir
    ready_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    ordered: bool = True

    @property
    def seconds(self) -> float:
        """When the last transmission ends."""
        return float(self.end_s.max(initial=0.0))


def moments(
    route: Route, costs: LinkCosts, devices: int, clock: str, medium: Medium, latency_s: float
) -> Moments:
    """When the transmissions of an exchange begin and end.

    Args:
        route: what is sent.
        costs: price of one bit on every link of the graph.
        devices: number of devices N.
        clock: ``"critical-path"``, or ``"paper"`` (eq. `tcp`), which knows no order of messages.
        medium: how transmissions share the air.
        latency_s: seconds of the exchange by the price list, for the paper's clock.

    >>> from joulemesh.aggregation.medium import ORTHOGONAL
    >>> route = Route.build("path", edges=[[0, 1], [1, 2]], edge=[0, 1], forward=True, step=[0, 1],
    ...                     bits=8.0, repeats=1, uses=1)
    >>> found = moments(route, LinkCosts(*np.ones((4, 2))), 3, "critical-path", ORTHOGONAL, 16.0)
    >>> found.start_s.tolist(), found.end_s.tolist()
    ([[0.0, 8.0]], [[8.0, 16.0]])
    """
    air = on_air(route, costs, broadcast=medium.broadcast)
    if not len(route.edge):
        nothing = np.zeros((1, 0))
        return Moments(air, nothing, nothing, nothing)
    if clock == "paper":
        start_s, end_s = _in_equal_steps(route, latency_s)
    elif medium.shared:
        start_s, end_s = _in_slots(route, air, devices, medium)
    elif medium.turns:
        start_s, end_s = _in_turns(route, costs, air.seconds, devices)
    else:
        start_s, end_s = _when_held(route, air, devices)
    ready_s = np.minimum(_held(route, air, end_s, devices), start_s)
    return Moments(air, ready_s, start_s, end_s, clock != "paper")


def _held(route: Route, air: OnAir, end_s: FloatArray, devices: int) -> FloatArray:
    """When senders hold what they send: what they receive in earlier steps, of the same chunk."""
    ready_s, held = np.zeros_like(end_s), np.zeros(devices)
    sent = np.searchsorted(air.step, np.arange(route.steps + 1)).tolist()
    heard = np.searchsorted(route.step, np.arange(route.steps + 1)).tolist()
    for time, ends in enumerate(end_s):
        if route.chunks > 1:
            held = np.zeros(devices)
        for (low, high), (first, last) in zip(pairwise(sent), pairwise(heard), strict=True):
            ready_s[time, low:high] = held[air.sender[low:high]]
            arrivals = ends[air.carrier[first:last]]
            np.maximum.at(held, air.receiver[first:last], arrivals)
    return ready_s


def _when_held(route: Route, air: OnAir, devices: int) -> tuple[FloatArray, FloatArray]:
    """Orthogonal links: a device sends when it holds what it must send, and the link is free."""
    seconds = air.seconds[air.carrier] / route.chunks
    start_s, end_s = np.zeros((2, route.repeats * route.chunks, len(route.edge)))
    for time, rows, start, arrival in followed(route, seconds, devices):
        start_s[time, rows], end_s[time, rows] = start, arrival
    # The messages of one broadcast begin together and take equally long.
    first = np.unique(air.carrier, return_index=True)[1]
    return start_s[:, first], end_s[:, first]


def _in_equal_steps(route: Route, latency_s: float) -> tuple[FloatArray, FloatArray]:
    later = 1 if route.chunks > 1 else route.steps
    times = np.arange(route.repeats * route.chunks)
    step = times[:, None] * later + route.step
    begins: FloatArray = step.astype(np.float64) * (latency_s / route.length)
    return begins, np.asarray(begins + latency_s / route.length)


# A shared medium ----------------------------------------------------------------------------------


def _in_slots(
    route: Route, air: OnAir, devices: int, medium: Medium
) -> tuple[FloatArray, FloatArray]:
    """Slots follow one another, play after play; those of a pipelined route, frame after frame."""
    if route.chunks > 1:
        return _in_frames(route, air, frame(air, devices, medium.reach).slot)
    slots = in_slots(air, devices, medium.reach)
    begins = np.cumsum(slots.lengths_s) - slots.lengths_s
    plays = np.arange(route.repeats)[:, None] * slots.seconds
    start_s = plays + begins[slots.slot]
    return start_s, start_s + air.seconds


def _in_frames(route: Route, air: OnAir, slot: IntArray) -> tuple[FloatArray, FloatArray]:
    """Each turn plays the slots of those that have a chunk to send, as long as the longest."""
    each_s, chunks = air.seconds / route.chunks, route.chunks
    start_s, now_s = np.zeros((chunks, len(slot))), 0.0
    for turn in range(route.length):
        low, high = np.searchsorted(air.step, [turn - chunks + 1, turn + 1]).tolist()
        lengths = np.zeros(int(slot.max()) + 1)
        np.maximum.at(lengths, slot[low:high], each_s[low:high])
        begins = now_s + np.cumsum(lengths) - lengths
        start_s[turn - air.step[low:high], np.arange(low, high)] = begins[slot[low:high]]
        now_s += float(lengths.sum())
    return start_s, start_s + each_s


# Half duplex --------------------------------------------------------------------------------------


def _in_turns(
    route: Route, costs: LinkCosts, seconds: FloatArray, devices: int
) -> tuple[FloatArray, FloatArray]:
    """Both ends of a message are taken until it has passed; whose turn it is, the price says."""
    times = route.repeats * route.chunks
    if route.chunks > 1:
        order: Iterable[tuple[int, int]] = ((chunk, row) for _, chunk, row in route.chunk_rows())
    elif is_tree(route):
        order = _tree_order(route, costs, devices)
    elif route.steps == 1:
        return _colour_by_colour(route, seconds, devices)
    else:
        order = ((play, row) for play in range(times) for row in range(len(route.edge)))
    each_s = (seconds / route.chunks).tolist()
    sender, receiver = route.sender.tolist(), route.receiver.tolist()
    free, start_s = [0.0] * devices, np.zeros((times, len(each_s)))
    for time, row in order:
        i, j = sender[row], receiver[row]
        begins = max(free[i], free[j])
        start_s[time, row] = begins
        free[i] = free[j] = begins + each_s[row]
    return start_s, start_s + each_s


def _tree_order(route: Route, costs: LinkCosts, devices: int) -> Iterator[tuple[int, int]]:
    own = costs.take(route.link_index).for_messages(float(route.bits[0]))
    rows = {ends: row for row, ends in enumerate(zip(route.sender, route.receiver, strict=True))}
    for ends in half_duplex_order(route.edges, own, devices, route.root):
        yield 0, rows[ends]


def _colour_by_colour(
    route: Route, seconds: FloatArray, devices: int
) -> tuple[FloatArray, FloatArray]:
    """Links that share no device at once; of a link, one message after the other."""
    per_link = np.bincount(route.edge, seconds, len(route.edges))
    colour = edge_colours(route.edges, devices)
    lengths = np.zeros(int(colour.max()) + 1)
    np.maximum.at(lengths, colour, per_link)
    begins = np.cumsum(lengths) - lengths
    start = begins[colour[route.edge]]
    taken = np.zeros(len(route.edges))
    for row, link in enumerate(route.edge.tolist()):
        start[row] += taken[link]
        taken[link] += seconds[row]
    start_s = np.arange(route.repeats)[:, None] * float(lengths.sum()) + start
    return start_s, start_s + seconds
