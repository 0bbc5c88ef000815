"""The end of a link that listens: it takes bytes, gives bytes, and measures for the operator.

Only those who have come through the gate by their certificate, and whom `permit` lets, are served;
a transfer has a largest size and a longest time, and nobody has more than a few under way.
"""

from __future__ import annotations

__all__ = ["DONE", "MEASURE", "LinkService", "Order"]

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, Protocol

from pydantic import TypeAdapter, ValidationError

from joulemesh._version import __version__
from joulemesh.deploy.links.figures import Rule, Timed
from joulemesh.deploy.links.tcp import tcp_figures
from joulemesh.deploy.links.transfers import (
    COUNTERS,
    LONGEST_S,
    PULL,
    PUSH,
    Hello,
    pieces,
    said_counters,
)
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.gate import Peer

import grpc  # isort: skip  (the transport prepares it, and says what to install where it is missing)

MEASURE, DONE = "/joulemesh.Links/Measure", "/joulemesh.Links/Done"
LEAST_LIMIT = 32 * 2**20
"""Bytes of a transfer that every listener takes; a fleet's takes its model, if that is larger."""

_AT_ONCE = 2  # of one peer
_MOST_SECONDS = 300.0


@dataclass(frozen=True)
class Order:
    """What the operator asks a device to measure.

    Attributes:
        rule: how each link is measured.
        to: names of the neighbours.
        wait_s: seconds to wait before beginning, so that all devices begin together.
    """

    rule: Rule
    to: tuple[str, ...]
    wait_s: float = 0.0


_ORDER = TypeAdapter(Order)


class Port(Protocol):
    """What the service needs of a transport: see `GrpcTransport`."""

    def peer_of(self, context: Any) -> Peer:
        """Who calls."""

    async def refuse(self, context: Any, error: TransportError) -> NoReturn:
        """End a call with a reason."""


class LinkService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves timed transfers on a transport's port.

    Args:
        port: the transport.
        name: what this end is called; may be empty.
        permit: raises a `TransportError` unless a peer may transfer.
        most_bytes: of one transfer.
        measure: carries out the operator's orders; None where nobody may give any.
    """

    def __init__(
        self,
        port: Port,
        name: str,
        permit: Callable[[Peer], None],
        *,
        most_bytes: int = LEAST_LIMIT,
        measure: Callable[[Order], Awaitable[list[Timed]]] | None = None,
    ) -> None:
        self._port, self._name, self._permit = port, name, permit
        self._most, self._measure = max(most_bytes, LEAST_LIMIT), measure
        self._under_way: Counter[str] = Counter()
        self._measuring = asyncio.Lock()
        self.done = asyncio.Event()
        """Set when whoever measures has said that it is over."""

    def service(self, handler_call_details: Any) -> Any:
        """What serves a call; None if it is another's."""
        served = {
            PUSH: grpc.stream_unary_rpc_method_handler(self._push),
            PULL: grpc.unary_stream_rpc_method_handler(self._pull),
            MEASURE: grpc.unary_unary_rpc_method_handler(self._ordered),
            DONE: grpc.unary_unary_rpc_method_handler(self._over),
        }
        return served.get(handler_call_details.method)

    @contextmanager
    def _transfer(self, context: Any) -> Iterator[Peer]:
        peer = self._port.peer_of(context)
        self._permit(peer)
        if self._under_way[peer.name] >= _AT_ONCE:
            raise TransportError(
                Reason.TOO_MANY, f"{peer.name} has {_AT_ONCE} transfers under way already"
            )
        self._under_way[peer.name] += 1
        try:
            yield peer
        finally:
            self._under_way -= Counter([peer.name])  # which drops what has come to 0

    async def _push(self, coming: Any, context: Any) -> bytes:
        taken = 0
        try:
            with self._transfer(context):
                async with asyncio.timeout(LONGEST_S):
                    async for piece in coming:
                        taken += len(piece)
                        self._check(taken)
        except TransportError as error:
            await self._port.refuse(context, error)
        except TimeoutError:
            await self._port.refuse(context, _late())
        return json.dumps(asdict(Hello(self._name, __version__, self._most, taken))).encode()

    async def _pull(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            with self._transfer(context) as peer:
                wanted = _wanted(request)
                self._check(wanted)
                async with asyncio.timeout(LONGEST_S):
                    async for piece in pieces(wanted):
                        yield piece
        except TransportError as error:
            await self._port.refuse(context, error)
        except TimeoutError:
            await self._port.refuse(context, _late())
        if not wanted:  # looking for the counters takes time, which no transfer is to be charged
            host, _, port = peer.address.rpartition(":")
            counted = tcp_figures({host.strip("[]")}, int(port))
            context.set_trailing_metadata(((COUNTERS, said_counters(counted)),))

    def _check(self, size: int) -> None:
        if size > self._most:
            raise TransportError(
                Reason.TOO_LARGE, f"a transfer of more than {self._most:,} bytes is not taken here"
            )

    async def _ordered(self, request: bytes, context: Any) -> bytes:
        try:
            peer = self._port.peer_of(context)
            if peer.role != "operator" or self._measure is None:
                raise TransportError(
                    Reason.NOT_PERMITTED, f"{peer.name} is not the operator of a fleet"
                )
            order = _checked(request)
            if self._measuring.locked():
                raise TransportError(Reason.TOO_MANY, f"{self._name} is measuring already")
            async with self._measuring:
                await asyncio.sleep(order.wait_s)
                found = await self._measure(order)
            return json.dumps([asdict(one) for one in found]).encode()
        except TransportError as error:
            await self._port.refuse(context, error)

    async def _over(self, request: bytes, context: Any) -> bytes:
        try:
            peer = self._port.peer_of(context)
            if peer.role != "operator":
                self._permit(peer)
        except TransportError as error:
            await self._port.refuse(context, error)
        self.done.set()
        return b""


def _late() -> TransportError:
    return TransportError(Reason.LATE, f"a transfer of more than {LONGEST_S:g} s")


def _wanted(request: bytes) -> int:
    """The number of bytes that a request asks for.

    >>> _wanted(b'{"bytes": 7}')
    7
    """
    try:
        size = json.loads(request[:100])["bytes"]
        if type(size) is int and size >= 0:
            return size
    except (ValueError, TypeError, LookupError):
        pass
    raise TransportError(Reason.MALFORMED, "the question makes no sense")


def _checked(request: bytes) -> Order:
    try:
        order: Order = _ORDER.validate_json(request)
    except ValidationError:
        raise TransportError(Reason.MALFORMED, "the order makes no sense") from None
    rule = order.rule
    if not (rule.payload_bytes > 0 and 0 < rule.seconds <= _MOST_SECONDS and rule.least <= 100):
        raise TransportError(
            Reason.TOO_LARGE, f"a link is measured for {_MOST_SECONDS:g} s at the most"
        )
    if not 0 <= order.wait_s <= 60:
        raise TransportError(Reason.TOO_LARGE, "a wait of more than 60 s")
    return order
