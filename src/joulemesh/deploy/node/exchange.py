"""One device's exchange, driven by whatever arrives and in whatever order.

A scheme's `Peer` says what is sent and what is kept. Here is what surrounds it on a real network:
which messages it awaits, which step it is in, what may go out now, and when it is done.
"""

from __future__ import annotations

__all__ = ["Awaited", "Exchange", "Outgoing"]

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from joulemesh.aggregation.peer import Peer, Vector
from joulemesh.aggregation.route import Route

Outgoing: TypeAlias = tuple[int, int, Vector]
"""(step, receiver, what is sent to it)"""


class Awaited:
    """The messages that a route has for one device.

    Args:
        route: of the exchange.
        device: its number.

    >>> route = Route.build("tree", edges=[[0, 1]], edge=[0, 0], forward=[True, False],
    ...                     step=[0, 1], bits=8.0, repeats=1, uses=2).in_chunks(2)
    >>> Awaited(route, 1).of(0), Awaited(route, 1).total, (1, 0) in Awaited(route, 1)
    ([0, 1], 2, True)
    """

    def __init__(self, route: Route, device: int) -> None:
        self.length, self.chunks = route.length, route.chunks
        self._pattern = max(route.steps, 1)
        mine = np.flatnonzero(route.receiver == device)
        senders, steps = route.sender[mine].tolist(), route.step[mine].tolist()
        self._steps: dict[int, list[int]] = {}
        self._senders: dict[int, list[int]] = {}
        for sender, step in zip(senders, steps, strict=True):
            self._steps.setdefault(sender, []).append(step)
            self._senders.setdefault(step, []).append(sender)
        self.total = len(mine) * route.repeats * route.chunks

    def senders(self, step: int) -> list[int]:
        """The senders of a step; of a route in chunks, those of its first chunk."""
        return self._senders.get(step % self._pattern, [])

    def of(self, sender: int) -> list[int]:
        """The steps in which a device sends to this one."""
        steps = self._steps.get(sender, [])
        if self.chunks > 1:
            return [step + chunk for step in steps for chunk in range(self.chunks)]
        return [at + step for at in range(0, self.length, self._pattern) for step in steps]

    @property
    def neighbours(self) -> Iterable[int]:
        """The devices that send to this one."""
        return self._steps.keys()

    def __contains__(self, message: tuple[int, int]) -> bool:
        step, sender = message
        if not 0 <= step < self.length:
            return False
        if self.chunks > 1:
            return any(0 <= step - first < self.chunks for first in self._steps.get(sender, ()))
        return sender in self.senders(step)


class Exchange:
    """Pumps a peer: takes what arrives, and gives what can be sent.

    Args:
        peer: what the device does.
        awaited: the messages that the route has for it.
        own: [P], its own parameters.

    >>> from joulemesh.aggregation.ring import RingPeer
    >>> route = Route.build("ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
    ...                     forward=[True, True, False], bits=8.0, repeats=2, uses=2)
    >>> exchange = Exchange(RingPeer(1, route), Awaited(route, 1), np.array([3.0]))
    >>> exchange.begin()
    [(0, 2, array([3.]))]
    >>> exchange.receive(1, 0, np.array([7.0])), exchange.waiting()  # the later one came first
    ([], [(0, 0)])
    >>> exchange.receive(0, 0, np.array([6.0]))
    [(1, 2, array([6.]))]
    >>> exchange.done, exchange.finish()
    (True, array([5.33333333]))
    """

    def __init__(self, peer: Peer, awaited: Awaited, own: Vector) -> None:
        self._peer, self.awaited, self._own = peer, awaited, own
        self._due: Any = getattr(peer, "due", None)  # a pipelined peer needs no step to be over
        self._had: set[tuple[int, int]] = set()
        self._step, self._sent = 0, False
        self.absent: list[tuple[int, int]] = []
        self._alone, self._after = False, own

    def begin(self) -> list[Outgoing]:
        """What can be sent before anything has come."""
        self._peer.start(self._own)
        return self._pump()

    @property
    def done(self) -> bool:
        """Has everything come that will?"""
        if self._alone or self._due is not None:
            return self._alone or len(self._had) == self.awaited.total
        return self._step >= self.awaited.length

    def takes(self, step: int, sender: int) -> bool:
        """Is this a message that the exchange still awaits?"""
        return (
            not self._alone and (step, sender) not in self._had and (step, sender) in self.awaited
        )

    def receive(self, step: int, sender: int, payload: Vector) -> list[Outgoing]:
        """Take a message that the exchange awaits (`takes`); what can be sent now.

        Raises:
            ValueError, RuntimeError: the peer cannot use it; the exchange is spoilt.
        """
        self._had.add((step, sender))
        self._peer.receive(step, sender, payload)
        return self._pump()

    def go_without(self, sender: int) -> list[Outgoing]:
        """Nothing more will come from a device: do without it; what can be sent now."""
        missing = [step for step in self.awaited.of(sender) if self.takes(step, sender)]
        if not missing or self.done:
            return []
        self.absent += [(step, sender) for step in missing]
        if not getattr(self._peer, "skips", False):  # all weight stays with oneself
            self._alone = True
            return []
        skip: Any = self._peer
        for step in missing:
            self._had.add((step, sender))
            skip.skip(step, sender)
        return self._pump()

    def waiting(self) -> list[tuple[int, int]]:
        """(neighbour, step): the first message of each neighbour that holds the exchange up."""
        if self.done:
            return []
        if self._due is None:
            missing = [s for s in self.awaited.senders(self._step) if self.takes(self._step, s)]
            return [(sender, self._step) for sender in missing]
        firsts = (
            (sender, next((s for s in self.awaited.of(sender) if self.takes(s, sender)), None))
            for sender in self.awaited.neighbours
        )
        return [(sender, step) for sender, step in firsts if step is not None]

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""
        return self._own if self._alone else self._after

    def _pump(self) -> list[Outgoing]:
        found = self._ready()
        if self.done:
            self._after = self._peer.finish()
        return found

    def _ready(self) -> list[Outgoing]:
        """The messages that can be sent now."""
        if self._due is not None:
            return list(self._due())
        found: list[Outgoing] = []
        while self._step < self.awaited.length:
            step = self._step
            if not self._sent:
                found += [(step, to, payload) for to, payload in self._peer.send(step)]
                self._sent = True
            if any((step, sender) not in self._had for sender in self.awaited.senders(step)):
                break
            self._step, self._sent = step + 1, False
        return found
