"""Timed transfers over a channel, both ways: the end that asks."""

from __future__ import annotations

__all__ = ["Hello", "Way", "hello", "time_way"]

import asyncio
import json
import os
import socket
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from joulemesh.deploy.links.figures import MOST_TIMED, Rule, Timed
from joulemesh.deploy.links.tcp import TcpFigures, between, tcp_figures
from joulemesh.deploy.transport import Address, Reason, TransportError

PUSH, PULL = "/joulemesh.Links/Push", "/joulemesh.Links/Pull"
COUNTERS = "joulemesh-tcp"
"""Of the metadata that ends a `PULL`: segments that the sender has sent, and sent again."""

PIECE = 256 * 1024
LONGEST_S = 600.0
"""Seconds of one transfer, beyond which either end gives up."""

_TRIPS = 7
_CALL_S = 10.0
_WARM_UP = 256 * 1024  # after which a connection has found its speed

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


_HELLO = TypeAdapter(Hello)


async def hello(channel: Any) -> Hello:
    """What the other end says of itself; this connects."""
    return await _push(channel, 0)


async def time_way(
    channel: Any, address: Address, way: Way, rule: Rule, ends: tuple[str, str]
) -> Timed:
    """Time transfers in one direction, as a rule says.

    Args:
        channel: to the end that listens.
        address: where that is.
        way: from here (``"push"``) or to here (``"pull"``).
        rule: how large, how often and how long.
        ends: what sender and receiver are called.

    Raises:
        TransportError: fewer bytes came than were sent.
        grpc.aio.AioRpcError: the other end has refused, or is gone.
    """
    trip_s = await _trip_s(channel)
    transfer = _push if way == "push" else _pull
    await _moved(transfer, channel, min(rule.payload_bytes, _WARM_UP))
    seconds: list[float] = []
    before, begun = await _counters(channel, address, way), time.monotonic()
    while not rule.enough(seconds, time.monotonic() - begun):
        start = time.perf_counter()
        await _moved(transfer, channel, rule.payload_bytes)
        took_s = time.perf_counter() - start
        # An empty answer, or the question, travels half of a round trip besides the content.
        if len(seconds) < MOST_TIMED:
            seconds.append(max(took_s - trip_s / 2, took_s / 2))
    sent = between(before, await _counters(channel, address, way))
    return Timed(
        *ends,
        rule.payload_bytes,
        tuple(seconds),
        trip_s,
        None if sent is None else sent.segments,
        None if sent is None else sent.resent,
    )


async def _moved(transfer: Callable[[Any, int], Any], channel: Any, payload_bytes: int) -> None:
    came = (await transfer(channel, payload_bytes)).taken
    if came != payload_bytes:
        raise TransportError(
            Reason.MALFORMED, f"{came:,} bytes have come of {payload_bytes:,} that were sent"
        )


async def _trip_s(channel: Any) -> float:
    """Median seconds of a message without content, there and back."""
    taken = []
    for _ in range(_TRIPS):
        start = time.perf_counter()
        await _push(channel, 0)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


async def _push(channel: Any, payload_bytes: int) -> Hello:
    within_s = LONGEST_S if payload_bytes else _CALL_S
    return _HELLO.validate_json(
        await channel.stream_unary(PUSH)(pieces(payload_bytes), timeout=within_s)
    )


async def pieces(payload_bytes: int) -> AsyncIterator[bytes]:
    """So many bytes that nothing on their way can compress; at least one piece, be it empty."""
    piece = os.urandom(min(PIECE, payload_bytes))
    for begin in range(0, max(payload_bytes, 1), PIECE):
        yield piece[: payload_bytes - begin]


@dataclass(frozen=True)
class _Came:
    taken: int
    sent: TcpFigures | None


async def _pull(channel: Any, payload_bytes: int) -> _Came:
    request = json.dumps({"bytes": payload_bytes}).encode()
    call, taken = channel.unary_stream(PULL)(request, timeout=LONGEST_S), 0
    async for piece in call:
        taken += len(piece)
    said = {str(key): value for key, value in await call.trailing_metadata() or ()}
    return _Came(taken, read_counters(str(said.get(COUNTERS, ""))))


async def _counters(channel: Any, address: Address, way: Way) -> TcpFigures | None:
    """What the sender's system has counted on this connection so far."""
    if way == "pull":
        came: _Came = await _pull(channel, 0)
        return came.sent
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError:
        return None
    return tcp_figures({str(place[0]) for *_, place in found}, address.port)


def said_counters(figures: TcpFigures | None) -> str:
    """Counters as a line for the other end.

    >>> said_counters(TcpFigures(20, 1, 0.5)), said_counters(None)
    ('20 1 0.5', '')
    """
    return "" if figures is None else f"{figures.segments} {figures.resent} {figures.rtt_s!r}"


def read_counters(line: str) -> TcpFigures | None:
    """What `said_counters` says; None for anything else.

    >>> read_counters("20 1 0.5"), read_counters("many")
    (TcpFigures(segments=20, resent=1, rtt_s=0.5), None)
    """
    try:
        segments, resent, rtt_s = line.split()
        return TcpFigures(int(segments), int(resent), float(rtt_s))
    except ValueError:
        return None
