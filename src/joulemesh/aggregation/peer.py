"""What one device does in an exchange: a state machine on arrays, without any network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.bits import pack, quantised, unpack
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError

Vector = NDArray[Any]
"""[P] numbers of one type, all of a model's parameters or a part of them."""

Message = tuple[int, Vector]
"""(receiver, what is sent to it)"""


class Peer(Protocol):
    """One device in one exchange.

    Call ``start`` first. Then, for every step of the route in order, call ``send`` and carry its
    messages, and call ``receive`` for every message that others send to this device in that step.
    A message may arrive before ``send`` is called for its step, and messages of one step may arrive
    in any order; all of a step must have arrived before ``send`` is called for the next, or
    ``finish``. Payloads are not changed after they are sent, and must not be changed by others.
    """

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""

    def send(self, step: int) -> list[Message]:
        """The messages of this device in a step."""

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        """Take a message that was sent in a step."""

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""


@runtime_checkable
class LossyPeer(Peer, Protocol):
    """A device that can go on when a message was lost on the air."""

    def lose(self, step: int, sender: int) -> None:
        """Go on without a message: what this device holds takes its place, with its weight.

        It is called in the place of ``receive``, after ``send`` of the same step. Every device
        still ends with a convex combination of all devices' parameters.
        """


class Summed(NamedTuple):
    """What a message stands for in the sum of all devices' parameters.

    Attributes:
        part: the part of the parameters that it is of.
        parts: their number; they are cut as by ``numpy.array_split``.
        times: how often it counts: once for a sum, N times for the mean of N.
    """

    part: int
    parts: int
    times: float


@runtime_checkable
class SummingPeer(Peer, Protocol):
    """A device whose messages are sums, or means, of devices' parameters."""

    def summed(self, step: int, to: int) -> Summed:
        """What the message to a device in a step stands for."""


class RoutePeer(ABC):
    """A peer that sends as its route says. A subclass says what it sends and what it keeps.

    It counts what arrives: a message that the route does not have, and one that is missing when it
    is needed, are errors, since the mean would be wrong without a sign of it. Messages of one step
    are taken in the order of their senders, so that sums do not depend on which came first.

    Args:
        device: its number in the whole graph.
        route: of the exchange, under the same numbers.

    >>> from joulemesh.aggregation.ring import RingPeer
    >>> route = Route.build("ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
    ...                     forward=[True, True, False], bits=8.0, repeats=2, uses=2)
    >>> peer = RingPeer(1, route)
    >>> peer.start(np.array([3.0]))
    >>> peer.send(0)
    [(2, array([3.]))]
    >>> peer.receive(0, 0, np.array([6.0]))
    >>> peer.send(1)
    [(2, array([6.]))]
    >>> peer.send(2)
    Traceback (most recent call last):
    ...
    RuntimeError: device 1 has no message of device 0 in step 1 of the exchange; wait for it
    """

    skips: ClassVar[bool] = False
    """Can the exchange do without a message, the weight of its sender staying with oneself?"""

    def __init__(self, device: int, route: Route) -> None:
        if route.chunks > 1:
            raise ValueError(
                f"a route of {route.chunks} chunks has several messages of a step at once, which "
                "RoutePeer does not tell apart; send one chunk, or write a Peer of your own"
            )
        self.device, self.steps = device, route.length
        self._pattern = max(route.steps, 1)
        self._to = self._by_step(route, route.sender, route.receiver)
        self._from = self._by_step(route, route.receiver, route.sender)
        self._arrived: dict[int, dict[int, Vector]] = {}
        self._absent: set[tuple[int, int]] = set()
        self._next = 0  # the first step that is not over

    def _by_step(self, route: Route, own: Vector, other: Vector) -> dict[int, list[int]]:
        """The devices at the other end of this device's messages, by step of the pattern."""
        found: dict[int, list[int]] = {}
        for row in np.flatnonzero(own == self.device).tolist():
            found.setdefault(int(route.step[row]), []).append(int(other[row]))
        return found

    def senders(self, step: int) -> list[int]:
        """The devices whose messages this one needs in a step."""
        return self._from.get(step % self._pattern, []) if 0 <= step < self.steps else []

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        self.held = own
        self._arrived.clear()
        self._absent.clear()
        self._next = 0

    def send(self, step: int) -> list[Message]:
        """The messages of this device in a step."""
        self._end_steps_before(step)
        if step >= self.steps:
            return []
        return [(to, self.payload(step)) for to in self._to.get(step % self._pattern, [])]

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        """Take a message that was sent in a step."""
        arrived = self._arrived.setdefault(step, {})
        if step < self._next or sender in arrived or sender not in self.senders(step):
            raise RuntimeError(
                f"device {self.device} expects no message of device {sender} in step {step} of "
                "the exchange; carry each message of the route once, before the next step"
            )
        arrived[sender] = payload

    def skip(self, step: int, sender: int) -> None:
        """Do without a message that will not come: the sender's weight stays with this device."""
        if not self.skips:
            raise RuntimeError(
                f"device {self.device} needs the message of device {sender} in step {step}: "
                "without it the mean is wrong"
            )
        awaited = step >= self._next and sender in self.senders(step)
        if not awaited or sender in self._arrived.get(step, {}):
            raise RuntimeError(
                f"device {self.device} awaits no message of device {sender} in step {step} of "
                "the exchange, and cannot skip it"
            )
        self._absent.add((step, sender))

    def lose(self, step: int, sender: int) -> None:
        """Go on without a message that was lost on the air: see `LossyPeer`."""
        self._end_steps_before(step)
        self.receive(step, sender, self.instead(step, sender))

    def instead(self, step: int, sender: int) -> Vector:
        """What takes the place of a lost message: what the device holds, if it can do without it.

        A subclass whose messages stand for the parameters of several devices says what does.
        """
        if not self.skips:
            raise ScenarioError(
                f"the devices of this scheme ({type(self).__name__}) do not say what takes the "
                "place of a lost message; define their method instead, or set "
                "network.packet_error = 0"
            )
        return self.held

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""
        self._end_steps_before(self.steps)
        return self.result()

    def _end_steps_before(self, step: int) -> None:
        while self._next < step:
            arrived = self._arrived.pop(self._next, {})
            for sender in self.senders(self._next):
                if sender not in arrived and (self._next, sender) not in self._absent:
                    raise RuntimeError(
                        f"device {self.device} has no message of device {sender} in step "
                        f"{self._next} of the exchange; wait for it"
                    )
            self.take(self._next, dict(sorted(arrived.items())))
            self._next += 1

    def payload(self, step: int) -> Vector:
        """What is sent in a step: what the device holds, unless a subclass says otherwise."""
        return self.held

    @abstractmethod
    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """End a step, given what arrived in it by sender (nothing, too)."""

    def result(self) -> Vector:
        """What the device holds after the last step."""
        return self.held


def rounded(numbers: Vector, wire: np.dtype[Any]) -> Vector:
    """What receivers get of some numbers, in the type of the sender."""
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


class QuantisedPeer:
    """A peer whose messages are quantised, and which remembers what that took away.

    It averages what has changed since the last average, which all devices hold, together with what
    it still owes to the sum of all. Whatever a message loses, its sender owes from then on: the
    changes of all devices are the changes of the average and what they owe, to rounding.

    Args:
        peer: what the device does.
        bits: of a number in a message.
        packed: do messages travel as bytes?

    Attributes:
        owed: [P], what it owes after the exchange.
    """

    def __init__(self, peer: SummingPeer, bits: int, *, packed: bool = False) -> None:
        self._peer, self.bits, self._packed = peer, bits, packed
        self._agreed: Vector | None = None
        self._before: Vector | None = None

    def continues(self, agreed: Vector | None, owed: Vector | None) -> None:
        """Go on from the last average, [P], and from what this device owes, [P].

        Without the former ``start`` is given the change since then.
        """
        self._agreed, self._before = agreed, owed

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        change = own.copy() if self._agreed is None else own - self._agreed
        if self._before is not None:
            change = change + self._before
        self._type = change.dtype
        self.owed = np.zeros_like(change)
        self._peer.start(change)

    def _sent(self, step: int, to: int, payload: Vector) -> Vector:
        """A message as receivers get it, which the peer holds from now on, too."""
        short = quantised(payload, self.bits)
        lost = payload - short
        if lost.any():
            part, parts, times = self._peer.summed(step, to)
            np.array_split(self.owed, parts)[part][...] += lost if times == 1 else lost * times
            if payload.flags.writeable:
                payload[...] = short
        return pack(short, self.bits) if self._packed else short

    def send(self, step: int) -> list[Message]:
        """The messages of this device in a step."""
        return [(to, self._sent(step, to, payload)) for to, payload in self._peer.send(step)]

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        """Take a message that was sent in a step."""
        if self._packed:
            payload = unpack(payload, self.bits, self._type)
        self._peer.receive(step, sender, payload)

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]: the average of all, for each of them."""
        change = self._peer.finish()
        return change if self._agreed is None else self._agreed + change

    def __getattr__(self, name: str) -> Any:
        """What only some peers have: ``due`` of pipelined ones."""
        found = getattr(self._peer, name)
        if name != "due":
            return found
        return lambda: [(step, to, self._sent(step, to, part)) for step, to, part in found()]
