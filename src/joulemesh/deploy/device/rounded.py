"""An exchange whose numbers travel with fewer digits than devices compute with."""

from __future__ import annotations

__all__ = ["RoundedPeer"]

from typing import Any

import numpy as np

from joulemesh.aggregation.peer import Message, Peer, Vector


class RoundedPeer:
    """A peer that knows what others receive of its numbers, and keeps no more than they get.

    The root of a tree that kept all digits of a mean of which it sent some would end with another
    model than everybody else.

    Args:
        peer: what the device does.
        wire: the type in which numbers travel.

    >>> from joulemesh.aggregation.route import Route
    >>> from joulemesh.aggregation.schemes.ring import RingPeer
    >>> route = Route.build("ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
    ...                     forward=[True, True, False], bits=8.0, repeats=2, uses=2)
    >>> peer = RoundedPeer(RingPeer(1, route), np.dtype("float16"))
    >>> peer.start(np.array([0.1]))
    >>> peer.send(0)
    [(2, array([0.09997559]))]
    """

    def __init__(self, peer: Peer, wire: np.dtype[Any]) -> None:
        self._peer, self._wire = peer, wire

    def _rounded(self, numbers: Vector) -> Vector:
        return numbers.astype(self._wire).astype(numbers.dtype)

    def _round_held(self, payload: Vector) -> Vector:
        """Round what is sent where the peer holds it: a sum that it will divide itself, too."""
        rounded = self._rounded(payload)
        if payload.flags.writeable:
            payload[...] = rounded
            return payload
        return rounded

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        self._peer.start(self._rounded(own))

    def send(self, step: int) -> list[Message]:
        """The messages of this device in a step."""
        return [(to, self._round_held(payload)) for to, payload in self._peer.send(step)]

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        """Take a message that was sent in a step."""
        self._peer.receive(step, sender, payload)

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""
        return self._rounded(self._peer.finish())

    def __getattr__(self, name: str) -> Any:
        """What only some peers have: ``due`` of pipelined ones, ``skip``."""
        found = getattr(self._peer, name)
        if name != "due":
            return found
        return lambda: [(step, to, self._round_held(part)) for step, to, part in found()]
