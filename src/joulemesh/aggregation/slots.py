"""Slots of a shared medium: transmissions that conflict are never on the air at once.

Each transmission takes the first slot, after those in which its sender receives what it must hold,
in which it conflicts with nothing; of the transmissions of one step the longest choose first. A
slot lasts as long as its longest transmission, and slots follow one another, so seconds add up.
How far that is from the best: notes: slots-of-a-shared-medium.

Slots are bits of whole numbers, one number for each device, so no conflict graph is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import or_

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.medium import Medium, Reach
from joulemesh.aggregation.on_air import OnAir, on_air
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.world.links import LinkCosts

__all__ = ["Slots", "frame", "in_frames_s", "in_slots", "least_slots_s", "shared_s"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of some transmissions.

    Attributes:
        slot: int64 [T]: of each transmission.
        lengths_s: float64 [S]: seconds of each slot.
    """

    slot: IntArray
    lengths_s: FloatArray

    @property
    def seconds(self) -> float:
        """Of all slots, one after another."""
        return float(self.lengths_s.sum())


class _Air:
    """Which slots are taken, seen from each device."""

    def __init__(self, devices: int, reach: Reach | None) -> None:
        self._sends = [0] * devices  # the slots in which each sends
        self._receives = [0] * devices
        self._near = [[]] * devices if reach is None else reach.lists()

    def take(self, sender: int, receivers: Sequence[int], after: int) -> int:
        """Take the first slot that is free for a transmission, not before slot ``after``."""
        sends, receives, near = self._sends, self._receives, self._near
        taken = sends[sender] | receives[sender]
        # It would drown what receivers within its range hear, and be drowned by senders there.
        taken = reduce(or_, map(receives.__getitem__, near[sender]), taken)
        for receiver in receivers:
            taken |= sends[receiver] | receives[receiver]
            taken = reduce(or_, map(sends.__getitem__, near[receiver]), taken)
        free = ~(taken >> after)
        bit = (free & -free) << after
        sends[sender] |= bit
        for receiver in receivers:
            receives[receiver] |= bit
        return bit.bit_length() - 1


def in_slots(air: OnAir, devices: int, reach: Reach | None) -> Slots:
    """Slots of a pattern that is played once, step after step.

    Args:
        air: its transmissions.
        devices: number of devices of the graph.
        reach: who interferes with whom.

    >>> from joulemesh.aggregation.gossip import metropolis_route
    >>> path = metropolis_route(np.array([[0, 1], [1, 2], [2, 3]]), 8.0, 1)
    >>> costs = LinkCosts(*np.ones((4, 3)))
    >>> in_slots(on_air(path, costs, broadcast=False), 4, None).slot.tolist()
    [0, 1, 2, 3, 0, 1]
    >>> in_slots(on_air(path, costs, broadcast=True), 4, None).slot.tolist()
    [0, 1, 2, 0]
    """
    return _placed(air, _first_the_longest(air, by_step=True), devices, reach)


def frame(air: OnAir, devices: int, reach: Reach | None) -> Slots:
    """Slots in which all transmissions of a pattern are on the air together, each for its chunk.

    >>> route = Route.build("ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=[0, 1, 2],
    ...                     forward=[True, True, False], bits=8.0, repeats=1, uses=1)
    >>> frame(on_air(route, LinkCosts(*np.ones((4, 3))), broadcast=False), 3, None).slot.tolist()
    [0, 1, 2]
    """
    order = _first_the_longest(air, by_step=False)
    return _placed(replace(air, step=np.zeros_like(air.step)), order, devices, reach)


def _first_the_longest(air: OnAir, *, by_step: bool) -> IntArray:
    """The order in which transmissions choose.

    Lengths that differ by rounding only count as equal, so that every device, on whatever machine,
    finds the same order.
    """
    receiver = np.zeros(len(air.sender), np.int64)
    receiver[air.carrier] = air.receiver  # a broadcast is known by its step and sender alone
    with np.errstate(over="ignore"):
        longest = -air.seconds.astype(np.float32)
    ties = (receiver, air.sender)
    return np.lexsort((*ties, longest, air.step) if by_step else (*ties, air.step, longest))


def _placed(air: OnAir, order: IntArray, devices: int, reach: Reach | None) -> Slots:
    if reach is not None and reach.everyone:  # one at a time, whatever the order
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        return Slots(number, air.seconds[order])
    senders, receivers, steps = air.sender.tolist(), air.receivers(), air.step.tolist()
    slots, holds = [0] * len(senders), [0] * devices
    taken = _Air(devices, reach)
    for _, step in groupby(order.tolist(), key=steps.__getitem__):
        arrivals = []
        for one in step:
            sender = senders[one]
            slots[one] = taken.take(sender, receivers[one], holds[sender])
            arrivals.append(one)
        for one in arrivals:  # of use from the next step on
            for receiver in receivers[one]:
                holds[receiver] = max(holds[receiver], slots[one] + 1)
    return _measured(np.array(slots, np.int64), air.seconds)


def _measured(slot: IntArray, seconds: FloatArray) -> Slots:
    lengths = np.zeros(int(slot.max(initial=-1)) + 1)
    np.maximum.at(lengths, slot, seconds)
    return Slots(slot, lengths)


# Pipelined routes ---------------------------------------------------------------------------------


def in_frames_s(air: OnAir, slots: Slots) -> Callable[[int], float]:
    """Seconds of a pipelined pattern as a function of its number of chunks.

    While chunk c is at a step, the chunk after it is one step behind, so each turn plays one frame:
    the slots of the transmissions that have a chunk to send, each as long as the longest of them.

    Args:
        air: the transmissions of the pattern, all chunks of each together.
        slots: the frame.

    >>> route = Route.build("path", edges=[[0, 1], [1, 2], [2, 3]], edge=[0, 1, 2], step=[0, 1, 2],
    ...                     forward=True, bits=12.0, repeats=1, uses=1)
    >>> air = on_air(route, LinkCosts(*np.ones((4, 3))), broadcast=False)
    >>> seconds = in_frames_s(air, frame(air, 4, None))
    >>> [seconds(chunks) for chunks in (1, 2, 3, 12)]  # the first and the last link share a slot
    [36.0, 36.0, 32.0, 26.0]
    """
    steps = int(air.step.max(initial=-1)) + 1
    longest = np.zeros((len(slots.lengths_s), steps))
    np.maximum.at(longest, (slots.slot, air.step), air.seconds)
    first = np.cumsum(np.maximum.accumulate(longest, axis=1).sum(axis=0))
    last = np.cumsum(np.maximum.accumulate(longest[:, ::-1], axis=1).sum(axis=0))

    def seconds(chunks: int) -> float:
        if chunks >= steps:  # it fills, runs full, and empties
            ends = first[-1] + last[-1] - 2 * slots.seconds if steps else 0.0
            return float((ends + (chunks - steps + 1) * slots.seconds) / chunks)
        filled = _window_max(longest, chunks).sum()
        ramps = first[chunks - 2] + last[chunks - 2] if chunks > 1 else 0.0
        return float((filled + ramps) / chunks)

    return seconds


def _window_max(rows: FloatArray, size: int) -> FloatArray:
    """Maxima over windows of ``size`` columns, by doubling."""
    reached = 1
    while 2 * reached <= size:
        rows = np.maximum(rows[:, :-reached], rows[:, reached:])
        reached *= 2
    rest = size - reached
    return np.maximum(rows[:, : rows.shape[1] - rest], rows[:, rest:])


# Seconds of a route, and the least that slots can take --------------------------------------------


def shared_s(route: Route, costs: LinkCosts, devices: int, medium: Medium) -> float:
    """Seconds of one exchange in a shared medium.

    Each play of a pattern begins when the one before it has ended.

    >>> from joulemesh.aggregation.gossip import metropolis_route
    >>> triangle = metropolis_route(np.array([[0, 1], [0, 2], [1, 2]]), 8.0, 5)
    >>> costs = LinkCosts(*np.ones((4, 3)))
    >>> [shared_s(triangle, costs, 3, Medium(shared=True, broadcast=one)) for one in (False, True)]
    [240.0, 120.0]
    """
    air = on_air(route, costs, broadcast=medium.broadcast)
    if route.chunks > 1:
        return in_frames_s(air, frame(air, devices, medium.reach))(route.chunks)
    return route.repeats * in_slots(air, devices, medium.reach).seconds


def least_slots_s(air: OnAir, devices: int) -> float:
    """Seconds below which no slots of these transmissions go, if all are of one step.

    At any length t, the transmissions longer than t need as many slots longer than t as there are
    at the device that has the most of them: the integral over t.

    >>> from joulemesh.aggregation.gossip import metropolis_route
    >>> path = metropolis_route(np.array([[0, 1], [1, 2]]), 8.0, 1)
    >>> least_slots_s(on_air(path, LinkCosts(*np.ones((4, 2))), broadcast=False), 3)
    32.0
    """
    order = np.argsort(-air.seconds, kind="stable")
    receivers = air.receivers()
    load, most, total = [0] * devices, 0, 0.0
    for one in order.tolist():
        for device in (int(air.sender[one]), *receivers[one]):
            load[device] += 1
            if load[device] > most:  # from here down to zero, one slot more
                most, total = most + 1, total + float(air.seconds[one])
    return total
