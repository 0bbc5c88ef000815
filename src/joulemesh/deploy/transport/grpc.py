"""Neighbours over gRPC: mutual TLS 1.3, neighbours only, one acknowledgement for each message."""

from __future__ import annotations

__all__ = ["GrpcTransport"]

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

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
from joulemesh.deploy.transport.channel import QUIET
from joulemesh.deploy.transport.gate import Gate, Peer
from joulemesh.deploy.transport.lane import REASON
from joulemesh.deploy.transport.link import EXCHANGE, Link, bytes_in
from joulemesh.deploy.transport.packets import PACKET_BYTES
from joulemesh.deploy.transport.refusals import Refusals
from joulemesh.deploy.transport.stream import Stream
from joulemesh.deploy.wire import Terms, check_greeting
from joulemesh.machine import trim_memory

import grpc  # isort: skip  (channel prepares it, and says what to install where it is missing)
import grpc.aio  # isort: skip

_STREAMS = 16
_TIDY_AFTER = 200
_GREETING_S = 4.0
_UNMET_S = 1.0  # until it is tried again whether the address of a neighbour is known
_WINDOW_S = 0.25  # of a link's rate: what may be under way, and what a sign of life waits behind
_MOST_BYTES = 4 * PACKET_BYTES  # beyond which gRPC refuses by itself, without a name
_CODES = {
    Reason.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.LATE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.CLOSED: grpc.StatusCode.CANCELLED,
}


class GrpcTransport:
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
        self._gate = Gate(identity, roster.names, listen, self._refusals.add, self._tidy, near)
        self._ended = 0  # connections and streams since memory was last given back
        self._rates = dict(rates_bps or {})
        self._links: dict[int, Link] = {}
        self._handlers: list[Any] = [_Exchange(self)]
        self._streams: dict[tuple[int, str], Stream] = {}
        self._receive: Receive | None = None
        self._server: Any = None
        self._closing = False

    @property
    def port(self) -> int:
        """The port that it listens on, once it has started."""
        return self._gate.port

    @property
    def refusals(self) -> Mapping[Reason, int]:
        """Refusals so far, by reason."""
        return self._refusals.counts

    def add_handler(self, handler: Any) -> None:
        """Serve other calls too. Whoever serves them asks `peer_of` who calls.

        Args:
            handler: a `grpc.GenericRpcHandler`, added before the start.
        """
        self._handlers.append(handler)

    def peer_of(self, context: Any) -> Peer:
        """Who calls, by its certificate.

        Args:
            context: of the call.

        Raises:
            TransportError: the connection has just ended.
        """
        peer = self._gate.peer(context.peer())
        if peer is None:
            raise TransportError(Reason.CLOSED, "the connection has ended")
        return peer

    async def refuse(self, context: Any, error: TransportError) -> NoReturn:
        """End a call with a reason that both sides hear of."""
        peer = self._gate.peer(context.peer())
        name, address = (peer.name, peer.address) if peer else ("", "")
        if error.reason is not Reason.CLOSED:
            self._refusals.add(Refusal(error.reason, error.detail, name, address))
        code = _CODES.get(error.reason, grpc.StatusCode.PERMISSION_DENIED)
        await context.abort(code, error.detail, ((REASON, str(error.reason)),))
        raise AssertionError("abort does not return")

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
        fastest = max(self._rates.values(), default=None)
        options = (
            *QUIET,
            ("grpc.http2.lookahead_bytes", bytes_in(_WINDOW_S, fastest, _MOST_BYTES)),
            ("grpc.max_concurrent_streams", _STREAMS),
            ("grpc.max_receive_message_length", _MOST_BYTES),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        )
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(tuple(self._handlers))
        self._server.add_insecure_port(f"unix:{self._gate.inside}")
        await self._server.start()
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
            rate_bps, at = self._rates.get(to), self._roster.at
            link = Link(self._identity, name, address, self._terms, rate_bps, at)
            self._links[to] = link
        await link.send(message, within_s)

    async def close(self) -> None:
        """Stop listening and give up what is under way."""
        self._closing = True
        await asyncio.gather(*(link.close() for link in self._links.values()))
        if self._server is not None:
            await self._server.stop(grace=0.2)
        await self._gate.close()

    async def exchange(self, context: Any) -> None:
        """Serve one stream of a neighbour."""
        try:
            device, lane = await self._welcome(context)
            await self._serve(device, lane, context)
        except TransportError as error:
            await self.refuse(context, error)
        finally:
            self._tidy()

    def _tidy(self) -> None:
        """After many connections and streams, give back what the C library keeps of their memory.

        It keeps pieces of all of it, in an arena for each of gRPC's threads: a neighbour that goes
        mad would otherwise take a little more with each of its attempts.
        """
        self._ended += 1
        if self._ended >= _TIDY_AFTER:
            self._ended = 0
            trim_memory()

    async def _welcome(self, context: Any) -> tuple[int, str]:
        peer = self.peer_of(context)
        if peer.role != "device":
            raise TransportError(Reason.NOT_PERMITTED, "an operator cannot take part")
        if peer.device is None:
            raise TransportError(Reason.NOT_IN_ROSTER, f"{peer.name} is not in the roster")
        if peer.device not in self._roster.addresses:
            raise TransportError(
                Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {self._roster.name}"
            )
        try:
            async with asyncio.timeout(_GREETING_S):
                first = await context.read()
        except TimeoutError:
            raise TransportError(Reason.LATE, f"no greeting within {_GREETING_S:g} s") from None
        if not isinstance(first, bytes):
            raise TransportError(Reason.MALFORMED, "no greeting")
        lane, at = check_greeting(first, self._terms)
        if at is not None and not self._addresses[peer.device].host:
            self._addresses[peer.device] = at
            self._met(peer.device, at)
        return peer.device, lane

    async def _serve(self, device: int, lane: str, context: Any) -> None:
        """Take messages. A new stream takes the place of an older one of the same lane at once.

        So no neighbour can have more than one message under way in each lane.
        """
        inside = context.peer()  # which gRPC forgets when the stream ends
        stream = Stream(context, self._terms, partial(self._hand_over, device))
        older = self._streams.get((device, lane))
        self._streams[device, lane] = stream
        if older is not None:
            older.give_way()
        try:
            broken_off = await stream.serve()
        finally:
            if self._streams[device, lane] is stream:
                del self._streams[device, lane]
        peer = self._gate.peer(inside)
        if broken_off and peer is not None and not self._closing:
            detail = f"it broke off, or sent a packet of more than {_MOST_BYTES:,} bytes"
            self._refusals.add(Refusal(Reason.MALFORMED, detail, peer.name, peer.address))

    def _hand_over(self, device: int, message: Message) -> None:
        assert self._receive is not None
        self._receive(device, message)


class _Exchange(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Leads calls of `EXCHANGE` to the transport."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport

    def service(self, handler_call_details: Any) -> Any:
        """What serves a call; None if it is another's."""
        if handler_call_details.method != EXCHANGE:
            return None

        async def exchange(_: Any, context: Any) -> None:
            await self._transport.exchange(context)

        return grpc.stream_stream_rpc_method_handler(exchange)
