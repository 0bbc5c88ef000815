"""Neighbours over TCP: mutual TLS 1.3, neighbours only, one acknowledgement for each message."""

from __future__ import annotations

__all__ = ["TcpTransport"]

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping

from joulemesh.deploy.fleet.identity import Identity
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import (
    Address,
    Reason,
    Receive,
    Refusal,
    Roster,
    TransportError,
)
from joulemesh.deploy.transport.calls import Answer, serve_calls
from joulemesh.deploy.transport.connection import FRAME_BYTES, Connection, Endpoint, Kind
from joulemesh.deploy.transport.gate import Gate, Peer, Refusals
from joulemesh.deploy.transport.link import PACE_S, Link
from joulemesh.deploy.transport.packets import Unpacker
from joulemesh.deploy.wire import Terms, check_greeting

_GREETING_S = 4.0
_UNMET_S = 1.0  # until it is tried again whether the address of a neighbour is known
_PIECE_S = 30.0  # in which the next piece of a message must come


class TcpTransport:
    """A device's connections to its neighbours (see `Transport`).

    Args:
        identity: of the device.
        roster: who is in the fleet, and where the neighbours listen.
        terms: of the fleet.
        listen: where this device listens.
        refused: told of what was not taken, without being flooded.
        met: told the address of a neighbour whose address was not known, when it connects.
        rates_bps: of the links to neighbours, as planned: messages that wait go together as long
            as the link takes no more than 5 ms for them. Without limit unless given.
    """

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        terms: Terms,
        listen: Address,
        *,
        refused: Callable[[Refusal], None] = lambda _: None,
        met: Callable[[int, Address], None] = lambda device, address: None,
        rates_bps: Mapping[int, float] | None = None,
    ) -> None:
        self._identity, self._roster, self._terms = identity, roster, terms
        self._addresses, self._met = dict(roster.addresses), met
        self._refusals = Refusals(refused)
        near = [address.host for address in roster.addresses.values() if address.host]
        self._gate = Gate(identity, roster.names, listen, self._serve, self._refusals.add, near)
        self._rates = dict(rates_bps or {})
        self._links: dict[int, Link] = {}
        self._incoming: dict[int, Incoming] = {}
        self._receive: Receive | None = None
        self.calls: dict[str, Answer] = {}
        """What is served besides: by name, what answers whom."""

    @property
    def port(self) -> int:
        """The port that it listens on, once it has started."""
        return self._gate.port

    @property
    def refusals(self) -> Mapping[Reason, int]:
        """Refusals so far, by reason."""
        return self._refusals.counts

    async def start(self, receive: Receive) -> None:
        """Begin to listen; messages are handed over one at a time.

        Raises:
            TransportError: this device cannot listen there, or its own certificate is not valid.
        """
        self._receive = receive
        bearer = self._identity.bearer
        if fault := bearer.fault():
            early = dt.datetime.now(dt.UTC) < bearer.not_before
            raise TransportError(Reason.NOT_YET_VALID if early else Reason.EXPIRED, fault)
        await self._gate.open()

    async def send(self, to: int, message: Message, within_s: float) -> None:
        """Deliver a message; return once the receiver has acknowledged it.

        Raises:
            TransportError: it was not acknowledged within so many seconds, or was refused.
        """
        link = self._links.get(to)
        if link is None:
            if to not in self._roster.addresses:
                raise TransportError(Reason.NOT_A_NEIGHBOUR, f"device {to} is no neighbour")
            name, address = self._roster.names[to], self._addresses[to]
            if not address.host:
                await asyncio.sleep(min(within_s, _UNMET_S))
                raise TransportError(
                    Reason.NAME_NOT_FOUND, f"the address of {name} is not known until it connects"
                )
            endpoint = Endpoint(self._identity, name, address)
            link = Link(endpoint, self._terms, self._rates.get(to), self._roster.at)
            self._links[to] = link
        await link.send(message, within_s)

    async def close(self) -> None:
        """Stop listening and give up what is under way."""
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await self._gate.close()

    async def _serve(self, connection: Connection, peer: Peer) -> None:
        connection.write(Kind.WELCOME)
        try:
            async with asyncio.timeout(_GREETING_S):
                kind, first = await connection.receive()
        except TimeoutError:
            raise TransportError(Reason.LATE, f"no greeting within {_GREETING_S:g} s") from None
        if kind == Kind.CALL:
            await serve_calls(connection, peer, self.calls, first)
        elif kind == Kind.GREETING:
            device = self._greeted(peer, first)
            incoming = Incoming(connection, self._terms, lambda said: self._hand_over(device, said))
            await self._take(device, incoming)
        else:
            raise TransportError(Reason.MALFORMED, "no greeting")

    def _greeted(self, peer: Peer, greeting: bytes) -> int:
        """The neighbour that has greeted, if it is one and has the same plan."""
        if peer.device is None:
            raise TransportError(Reason.NOT_PERMITTED, "an operator cannot take part")
        if peer.device not in self._roster.addresses:
            raise TransportError(
                Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {self._roster.name}"
            )
        at = check_greeting(greeting, self._terms)
        if at is not None and not self._addresses[peer.device].host:
            self._addresses[peer.device] = at
            self._met(peer.device, at)
        return peer.device

    async def _take(self, device: int, incoming: Incoming) -> None:
        """Take messages. A new connection takes the place of an older one at once.

        So no neighbour can have more than one message under way in each lane.
        """
        older = self._incoming.get(device)
        self._incoming[device] = incoming
        if older is not None:
            older.give_way()
        try:
            await incoming.serve()
        finally:
            if self._incoming.get(device) is incoming:
                del self._incoming[device]

    def _hand_over(self, device: int, message: Message) -> None:
        assert self._receive is not None
        self._receive(device, message)


class Incoming:
    """Takes the messages of a connection, and tells how many frames: at once, but not too often.

    Args:
        connection: whose greeting has been read.
        terms: of the fleet.
        take: called with every message.
    """

    def __init__(
        self, connection: Connection, terms: Terms, take: Callable[[Message], None]
    ) -> None:
        self._connection, self._hand_over = connection, take
        self._lanes = {kind: Unpacker(terms) for kind in (Kind.CONTROL, Kind.PARTS)}
        self._taken, self._soonest = 0, 0.0
        self._telling: asyncio.TimerHandle | None = None

    def give_way(self) -> None:
        """End it, since another has taken its place."""
        self._connection.refuse(TransportError(Reason.CLOSED, "a newer connection has its place"))

    async def serve(self) -> None:
        """Take messages until the connection ends.

        Raises:
            TransportError: something that came was not to be taken.
            OSError: the connection has ended.
        """
        self._connection.most = FRAME_BYTES
        self._tell()  # that the greeting is accepted
        try:
            while True:
                await self._take_one()
        finally:
            if self._telling is not None:
                self._telling.cancel()

    async def _take_one(self) -> None:
        amid = any(lane.amid for lane in self._lanes.values())
        try:
            async with asyncio.timeout(_PIECE_S if amid else None):
                kind, packet = await self._connection.receive()
        except TimeoutError:
            raise TransportError(
                Reason.LATE, f"nothing for {_PIECE_S:g} s amid a message"
            ) from None
        if kind not in (Kind.CONTROL, Kind.PARTS):
            raise TransportError(Reason.MALFORMED, "a frame of a kind that cannot come here")
        for message in self._lanes[Kind(kind)].feed(packet):
            self._hand_over(message)
        self._taken += 1
        if self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_at(max(self._soonest, loop.time()), self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._soonest = asyncio.get_running_loop().time() + PACE_S
        self._connection.write(Kind.TAKEN, self._taken.to_bytes(8, "big"))
