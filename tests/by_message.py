"""How long an exchange takes, message by message, by code that shares none of the planner's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from typing import Protocol

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
