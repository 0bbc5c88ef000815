"""An exchange whose numbers travel with fewer digits than devices compute with.

Devices in the field follow these rules, and so does training: it records them once for each route
(`joulemesh.setup.recorded`) and carries out what they do to the parameters.
"""

from __future__ import annotations

__all__ = ["RoundedPeer", "rounded"]

from typing import Any

import numpy as np

from joulemesh.aggregation.peer import Message, Peer, Vector
from joulemesh.errors import ScenarioError


def rounded(numbers: Vector, wire: np.dtype[Any]) -> Vector:
    """What receivers get of some numbers, in the type of the sender.

    Args:
        numbers: [P]; of objects, each is told to round itself.
        wire: the type in which they travel.

    Raises:
        ScenarioError: a number is too large for that type.

    >>> rounded(np.array([0.1, 1e-9]), np.dtype("float16"))
    array([0.09997559, 0.        ])
    """
    if numbers.dtype == object:
        return np.array([one.rounded() for one in numbers], dtype=object)
    with np.errstate(over="ignore"):
        short = numbers.astype(wire)
    if np.isinf(short).any():
        raise ScenarioError(
            f"a parameter, or a sum of parameters, is {np.abs(numbers).max():.6g}, and messages of "
            f"{8 * wire.itemsize} bits carry at most {np.finfo(wire).max:,.0f}; lower "
            "training.learning_rate, or set network.bits_per_parameter = 32"
        )
    return short.astype(numbers.dtype)


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
        return rounded(numbers, self._wire)

    def _round_held(self, payload: Vector) -> Vector:
        """Round what is sent where the peer holds it: a sum that it will divide itself, too."""
        short = self._rounded(payload)
        if payload.flags.writeable:
            payload[...] = short
            return payload
        return short

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
