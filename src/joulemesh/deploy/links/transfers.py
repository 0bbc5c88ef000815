"""Timed transfers over a link, both ways: the end that asks, and the end that serves.

Only those who have come through the gate by their certificate, and whom `permit` lets, are served;
a transfer has a largest size and a longest time, and nobody has more than a few under way.
"""

from __future__ import annotations

__all__ = ["Hello", "LinkService", "Order", "TcpFigures", "Way", "hello", "tell_done", "time_way"]

import asyncio
import json
import os
import socket
import statistics
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from joulemesh._version import __version__
from joulemesh.deploy.links.figures import MOST_TIMED, Rule, Timed
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.calls import Answer, Caller, checked, question
from joulemesh.deploy.transport.gate import Peer

PUSH, PULL, MEASURE, DONE = "links/push", "links/pull", "links/measure", "links/done"
LEAST_LIMIT = 32 * 2**20
"""Bytes of a transfer that every listener takes; a fleet's takes its model, if that is larger."""

_LONGEST_S = 600.0  # of one transfer, beyond which either end gives up
_MOST_SECONDS, _MOST_WAIT_S = 300.0, 60.0
_AT_ONCE = 2  # of one peer
_PIECE = 256 * 1024
_TRIPS, _CALL_S = 7, 10.0
_WARM_UP = 256 * 1024  # after which a connection has found its speed

# Of `struct tcp_info` (linux/tcp.h): 8 bytes, 24 numbers of 32 bits, 4 of 64, then 32 again.
_INFO_BYTES, _RESENT, _LEAST_RTT_US, _SEGMENTS = 160, 100, 148, 156

Way = Literal["push", "pull"]


@dataclass(frozen=True)
class Hello:
    """What the end that listens says of itself with every transfer.

    Attributes:
        name: what it is called; empty if nobody has named it.
        version: of Joulemesh.
        most_bytes: of a transfer that it takes.
        taken: bytes that have come.
    """

    name: str
    version: str
    most_bytes: int
    taken: int = 0


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


@dataclass(frozen=True)
class _Wanted:
    bytes: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class TcpFigures:
    """What the system has counted of a connection of TCP.

    Attributes:
        segments: with data that were sent, those sent again included.
        resent: segments that were sent again.
        rtt_s: shortest round trip that the system has seen.
    """

    segments: int
    resent: int
    rtt_s: float

    @classmethod
    def of(cls, plain: socket.socket) -> TcpFigures | None:
        """The figures so far; None where the system does not say.

        >>> with socket.create_server(("127.0.0.1", 0)) as server:
        ...     with socket.create_connection(server.getsockname()) as one:
        ...         _ = one.send(b"word")
        ...         found = TcpFigures.of(one)
        >>> found.segments if found else "no TCP_INFO"
        1
        """
        with suppress(OSError, AttributeError):
            info = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            if len(info) == _INFO_BYTES:  # a kernel older than 4.6 has less
                resent, rtt_us, segments = (
                    int(struct.unpack_from("=I", info, at)[0])
                    for at in (_RESENT, _LEAST_RTT_US, _SEGMENTS)
                )
                return cls(segments, resent, rtt_us / 1e6)
        return None


_HELLO, _ORDER, _WANTED = TypeAdapter(Hello), TypeAdapter(Order), TypeAdapter(_Wanted)
_COUNTED: TypeAdapter[TcpFigures | None] = TypeAdapter(TcpFigures | None)


async def hello(caller: Caller) -> Hello:
    """What the other end says of itself; this connects."""
    return await _push(caller, 0)


async def tell_done(caller: Caller) -> None:
    """Say that nothing more will be measured: who only listened ends."""
    await caller.ask(DONE)


async def time_way(caller: Caller, way: Way, rule: Rule, ends: tuple[str, str]) -> Timed:
    """Time transfers in one direction, as a rule says.

    Args:
        caller: of the end that listens.
        way: from here (``"push"``) or to here (``"pull"``).
        rule: how large, how often and how long.
        ends: what sender and receiver are called.

    Raises:
        TransportError: the other end has refused, is gone, or got fewer bytes than were sent.
    """
    trip_s = await _trip_s(caller)
    await _transfer(caller, way, min(rule.payload_bytes, _WARM_UP))
    seconds: list[float] = []
    before, begun = await _counted(caller, way), time.monotonic()
    while not rule.enough(seconds, time.monotonic() - begun):
        start = time.perf_counter()
        await _transfer(caller, way, rule.payload_bytes)
        took_s = time.perf_counter() - start
        # An empty answer, or the question, travels half of a round trip besides the content.
        if len(seconds) < MOST_TIMED:
            seconds.append(max(took_s - trip_s / 2, took_s / 2))
    after, segments, resent = await _counted(caller, way), None, None
    if before and after and after.segments >= before.segments:  # the same connection
        segments, resent = after.segments - before.segments, max(0, after.resent - before.resent)
    return Timed(*ends, rule.payload_bytes, tuple(seconds), trip_s, segments, resent)


async def _transfer(caller: Caller, way: Way, payload_bytes: int) -> None:
    if way == "push":
        came = (await _push(caller, payload_bytes)).taken
    else:
        wanted = json.dumps({"bytes": payload_bytes}).encode()
        came = sum([len(piece) async for piece in caller.stream(PULL, wanted, _LONGEST_S)])
    if came != payload_bytes:
        raise TransportError(
            Reason.MALFORMED, f"{came:,} bytes have come of {payload_bytes:,} that were sent"
        )


async def _trip_s(caller: Caller) -> float:
    """Median seconds of a message without content, there and back."""
    taken = []
    for _ in range(_TRIPS):
        start = time.perf_counter()
        await _push(caller, 0)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


async def _push(caller: Caller, payload_bytes: int) -> Hello:
    within_s = _LONGEST_S if payload_bytes else _CALL_S
    return await caller.get(_HELLO, PUSH, pieces(payload_bytes), within_s)


def pieces(payload_bytes: int) -> Iterator[bytes]:
    """So many bytes that nothing on their way can compress; at least one piece, be it empty."""
    piece = os.urandom(min(_PIECE, payload_bytes))
    for begin in range(0, max(payload_bytes, 1), _PIECE):
        yield piece[: payload_bytes - begin]


async def _counted(caller: Caller, way: Way) -> TcpFigures | None:
    """What the sender's system has counted on this connection so far."""
    if way == "pull":
        return await caller.get(_COUNTED, PULL, b'{"bytes": 0}', _CALL_S)
    return None if caller.connection is None else TcpFigures.of(caller.connection.socket)


class LinkService:
    """Serves timed transfers on a transport's port.

    Args:
        name: what this end is called; may be empty.
        permit: raises a `TransportError` unless a peer may transfer.
        most_bytes: of one transfer.
        measure: carries out the operator's orders; None where nobody may give any.
    """

    def __init__(
        self,
        name: str,
        permit: Callable[[Peer], None],
        *,
        most_bytes: int = LEAST_LIMIT,
        measure: Callable[[Order], Awaitable[list[Timed]]] | None = None,
    ) -> None:
        self._name, self._permit = name, permit
        self._most, self._measure = max(most_bytes, LEAST_LIMIT), measure
        self._under_way: Counter[str] = Counter()
        self._measuring = asyncio.Lock()
        self.done = asyncio.Event()
        """Set when whoever measures has said that it is over."""
        self.calls: dict[str, Answer] = {
            PUSH: self._push,
            PULL: self._pull,
            MEASURE: self._ordered,
            DONE: self._over,
        }

    @contextmanager
    def _transfer(self, peer: Peer) -> Iterator[None]:
        self._permit(peer)
        if self._under_way[peer.name] >= _AT_ONCE:
            raise TransportError(
                Reason.TOO_MANY, f"{peer.name} has {_AT_ONCE} transfers under way already"
            )
        self._under_way[peer.name] += 1
        try:
            yield
        finally:
            self._under_way -= Counter([peer.name])  # which drops what has come to 0

    async def _push(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        taken, until = 0, time.monotonic() + _LONGEST_S
        with self._transfer(peer):
            async for piece in coming:
                taken += len(piece)
                self._check(taken, until)
        yield json.dumps(asdict(Hello(self._name, __version__, self._most, taken))).encode()

    async def _pull(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        until = time.monotonic() + _LONGEST_S
        with self._transfer(peer):
            wanted = checked(_WANTED, await question(coming)).bytes
            for piece in pieces(wanted) if wanted else ():
                self._check(wanted, until)
                yield piece
        if not wanted:
            yield _COUNTED.dump_json(TcpFigures.of(peer.socket))

    def _check(self, size: int, until: float) -> None:
        if size > self._most:
            raise TransportError(
                Reason.TOO_LARGE, f"a transfer of more than {self._most:,} bytes is not taken here"
            )
        if time.monotonic() > until:
            raise TransportError(Reason.LATE, f"a transfer of more than {_LONGEST_S:g} s")

    async def _ordered(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        if peer.role != "operator" or self._measure is None:
            raise TransportError(
                Reason.NOT_PERMITTED, f"{peer.name} is not the operator of a fleet"
            )
        order = checked(_ORDER, await question(coming))
        rule = order.rule
        if not (rule.payload_bytes > 0 and 0 < rule.seconds <= _MOST_SECONDS and rule.least <= 100):
            raise TransportError(
                Reason.TOO_LARGE, f"a link is measured for {_MOST_SECONDS:g} s at the most"
            )
        if not 0 <= order.wait_s <= _MOST_WAIT_S:
            raise TransportError(Reason.TOO_LARGE, f"a wait of more than {_MOST_WAIT_S:g} s")
        if self._measuring.locked():
            raise TransportError(Reason.TOO_MANY, f"{self._name} is measuring already")
        async with self._measuring:
            await asyncio.sleep(order.wait_s)
            found = await self._measure(order)
        yield json.dumps([asdict(one) for one in found]).encode()

    async def _over(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        if peer.role != "operator":
            self._permit(peer)
        await question(coming)
        yield b""
        self.done.set()
