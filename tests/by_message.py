"""How long an exchange takes, message by message, by code that shares none of the planner's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np

from joulemesh.aggregation.route import Route

Message = tuple[int, int, int, float]  # step, sender, receiver, bits


class Radio(Protocol):
    """Knows how long a message is on the air."""

    def seconds(self, sender: int, receiver: int, bits: float) -> float:
        """Of a message of so many bits."""


def full_duplex_s(messages: Iterable[Message], radio: Radio) -> float:
    """A device sends when it holds what it must; a link carries one message at a time each way."""
    holds: dict[int, float] = defaultdict(float)
    free: dict[tuple[int, int], float] = defaultdict(float)
    for _, step in groupby(messages, key=lambda message: message[0]):
        before = dict(holds)
        for _, sender, receiver, bits in step:
            start = max(before.get(sender, 0.0), free[sender, receiver])
            free[sender, receiver] = start + radio.seconds(sender, receiver, bits)
            holds[receiver] = max(holds[receiver], free[sender, receiver])
    return max(holds.values())


def pipelined_s(route: Route, radio: Radio) -> float:
    """A chunk goes when it is held and its link is free, each way by itself."""
    holds: dict[tuple[int, int], float] = defaultdict(float)
    free: dict[tuple[int, int], float] = defaultdict(float)
    for _, chunk, sender, receiver, bits in route.chunk_messages():
        start = max(holds[sender, chunk], free[sender, receiver])
        free[sender, receiver] = start + radio.seconds(sender, receiver, bits)
        holds[receiver, chunk] = max(holds[receiver, chunk], free[sender, receiver])
    return max(holds.values())


# Broadcasts, and slots of a shared medium ---------------------------------------------------------

Hears = Callable[[int, int], bool]  # is a receiver within interference range of a sender?


class Sent(NamedTuple):
    """One transmission."""

    step: int
    sender: int
    receivers: tuple[int, ...]
    bits: float
    seconds: float  # at the rate of the slowest receiver


def transmissions(messages: Iterable[Message], radio: Radio, *, together: bool) -> list[Sent]:
    """Each message by itself, or those of one sender in one step together."""
    groups: dict[tuple[int, ...], list[Message]] = defaultdict(list)
    for message in messages:
        groups[message[:2] if together else message[:3]].append(message)
    found = []
    for group in groups.values():
        step, sender, _, bits = group[0]
        to = tuple(receiver for _, _, receiver, _ in group)
        slowest = max(radio.seconds(sender, receiver, bits) for receiver in to)
        found.append(Sent(step, sender, to, bits, slowest))
    return found


def conflict(one: Sent, other: Sent, hears: Hears) -> bool:
    """A common end, or a sender within range of the other's receiver."""
    return (
        not {one.sender, *one.receivers}.isdisjoint({other.sender, *other.receivers})
        or any(hears(one.sender, receiver) for receiver in other.receivers)
        or any(hears(other.sender, receiver) for receiver in one.receivers)
    )


def in_slots(sent: list[Sent], hears: Hears) -> list[list[Sent]]:
    """Into the first slot without a conflict, after all that the sender must have received."""
    slots: list[list[Sent]] = []
    holds: dict[int, int] = defaultdict(int)
    for step in sorted({one.step for one in sent}):
        now = [one for one in sent if one.step == step]
        now.sort(key=lambda one: (-np.float32(one.seconds), one.sender, one.receivers))
        arrived: dict[int, int] = defaultdict(int)
        for one in now:
            slot = holds[one.sender]
            while slot < len(slots) and any(conflict(one, other, hears) for other in slots[slot]):
                slot += 1
            slots.extend([] for _ in range(slot + 1 - len(slots)))
            slots[slot].append(one)
            for receiver in one.receivers:
                arrived[receiver] = max(arrived[receiver], slot + 1)
        for receiver, slot in arrived.items():
            holds[receiver] = max(holds[receiver], slot)
    return slots


def in_a_frame(sent: list[Sent], hears: Hears) -> list[list[Sent]]:
    """The same if all are on the air together, whatever their step: each carries another chunk."""
    slots: list[list[Sent]] = []
    for one in sorted(sent, key=lambda one: (-np.float32(one.seconds), *one[:3])):
        for slot in slots:
            if not any(conflict(one, other, hears) for other in slot):
                slot.append(one)
                break
        else:
            slots.append([one])
    return slots


def slots_s(slots: Iterable[Iterable[Sent]]) -> float:
    """Every slot is as long as its longest transmission."""
    return sum(max((one.seconds for one in slot), default=0.0) for slot in slots)


def shared_s(route: Route, radio: Radio, hears: Hears, *, broadcast: bool) -> float:
    """An exchange in a shared medium."""
    together = broadcast and route.same_to_all
    if route.chunks == 1:
        plays: dict[int, list[Message]] = defaultdict(list)
        for message in route.messages():
            plays[message[0] // route.steps].append(message)
        return sum(
            slots_s(in_slots(transmissions(play, radio, together=together), hears))
            for play in plays.values()
        )
    first = [
        (step, sender, receiver, bits)
        for step, chunk, sender, receiver, bits in route.chunk_messages()
        if chunk == 0
    ]
    frame = in_a_frame(transmissions(first, radio, together=together), hears)
    total = 0.0
    for turn in range(route.length):  # who sends chunk number turn - step
        total += slots_s(
            [one for one in slot if 0 <= turn - one.step < route.chunks] for slot in frame
        )
    return total


def levelled_s(route: Route, radio: Radio) -> float:
    """An exchange by broadcasts on orthogonal links: all receivers wait for the slowest."""
    if route.chunks > 1:
        listed = list(route.chunk_messages())
    else:
        listed = [(step, 0, sender, to, bits) for step, sender, to, bits in route.messages()]
    holds: dict[tuple[int, int], float] = defaultdict(float)
    free: dict[tuple[int, int], float] = defaultdict(float)
    for _, step in groupby(listed, key=lambda message: message[0]):
        before, groups = dict(holds), defaultdict(list)
        for _, chunk, sender, receiver, bits in step:
            groups[chunk, sender].append((receiver, bits))
        for (chunk, sender), to in groups.items():
            slowest = max(radio.seconds(sender, receiver, bits) for receiver, bits in to)
            for receiver, _ in to:
                start = max(before.get((sender, chunk), 0.0), free[sender, receiver])
                free[sender, receiver] = start + slowest
                holds[receiver, chunk] = max(holds[receiver, chunk], start + slowest)
    return max(holds.values())
