"""Timed transfers over a link: rules and figures, the end that asks, and the end that serves.

Only those who have come through the gate by their certificate, and whom `permit` lets, are served;
a transfer has a largest size and a longest time, and nobody has more than a few under way.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import statistics
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter
from scipy.special import stdtrit

from joulemesh._version import __version__
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.gate import Answer, Caller, Peer, checked, question

_CONFIDENCE = 0.95
MOST_TIMED = 1000
"""Transfers of one direction that are timed; those beyond only keep up the load."""

WIDE = 0.10
"""Half of an interval, as a share of the figure, beyond which a figure is not to be relied on."""


@dataclass(frozen=True)
class Rule:
    """How a link is measured."""

    payload_bytes: int
    # half of the 95 % interval, as a share of the mean, at which measuring ends
    within: float = 0.05
    seconds: float = 10.0  # after which it ends in any case, once ``least`` transfers were timed
    least: int = 5  # transfers that are timed at least
    # go on until the time is up, so that every link is measured under the load of all
    together: bool = False

    def enough(self, seconds: Sequence[float], elapsed_s: float) -> bool:
        if len(seconds) < self.least:
            return False
        if elapsed_s >= self.seconds or self.together:
            return elapsed_s >= self.seconds
        narrow = half_width(seconds) <= self.within * float(np.mean(seconds))
        return narrow or len(seconds) >= MOST_TIMED


class Rate(NamedTuple):
    """A rate and its 95 % interval, in bit/s."""

    bps: float
    low: float
    high: float

    @property
    def wide(self) -> bool:
        return self.high - self.low > 2 * WIDE * self.bps


@dataclass(frozen=True)
class Timed:
    """Transfers from one device to another."""

    here: str
    there: str
    payload_bytes: int = 0
    seconds: tuple[float, ...] = ()  # that each took, until the receiver had all of it
    rtt_s: float = math.nan  # median round trip of a message without content
    # of TCP that were sent meanwhile; None where the system does not say
    segments: int | None = None
    resent: int | None = None  # those among them that were sent again
    trouble: str = ""  # why there are no transfers

    @property
    def rate(self) -> Rate:
        return rate_of(8.0 * self.payload_bytes, self.seconds)

    @property
    def retransmitted(self) -> float | None:
        """Share of TCP's segments that were sent again; None where the system does not say."""
        if self.resent is None or not self.segments:
            return None
        return self.resent / self.segments


@dataclass(frozen=True)
class LinkFigures:
    """One direction of a link, as it was measured."""

    i: int  # number of the sender
    j: int  # number of the receiver
    # transfers while no other link was in use; None if they were not made
    alone: Timed | None = None
    together: Timed | None = None  # transfers while all links were in use

    @property
    def trouble(self) -> str:
        both = [one for one in (self.alone, self.together) if one is not None]
        if any(one.seconds for one in both):
            return ""
        return next((one.trouble for one in both if one.trouble), "nothing was measured")

    def chosen(self, use: str = "lower") -> Timed:
        named = {"alone": self.alone, "together": self.together}.get(use)
        if named is not None and named.seconds:
            return named
        there = [one for one in (self.alone, self.together) if one is not None and one.seconds]
        return min(there, key=lambda one: one.rate.bps)

    def rate(self, use: str = "lower") -> Rate:
        return self.chosen(use).rate


def half_width(seconds: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean (Student's t)."""
    if len(seconds) < 2:
        return math.inf
    spread = float(np.std(seconds, ddof=1)) / math.sqrt(len(seconds))
    return float(stdtrit(len(seconds) - 1, (1 + _CONFIDENCE) / 2)) * spread


def rate_of(bits: float, seconds: Sequence[float]) -> Rate:
    # Seconds of transfers add up in a plan, rates do not: so it is the bits over the mean of the
    # seconds, and the interval is that of the mean.
    if not seconds:
        return Rate(math.nan, math.nan, math.nan)
    mean, half = float(np.mean(seconds)), half_width(seconds)
    least = max(mean - half, mean / 10)  # of very uneven transfers, to stay finite
    return Rate(bits / mean, bits / (mean + half), bits / least)


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
    """What the end that listens says of itself with every transfer."""

    name: str  # what it is called; empty if nobody has named it
    version: str
    most_bytes: int  # of a transfer that it takes
    taken: int  # bytes that have come
    at: float  # Unix seconds by its clock
    plan: str  # digest of the plan that it carries out; empty without a fleet
    until: float  # last moment of its certificate, in Unix seconds


@dataclass(frozen=True)
class Order:
    """What the operator asks a device to measure."""

    rule: Rule  # how each link is measured
    to: tuple[str, ...]  # names of the neighbours
    wait_s: float = 0.0  # seconds to wait before beginning, so that all devices begin together


@dataclass(frozen=True)
class _Wanted:
    bytes: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class TcpFigures:
    """What the system has counted of a connection of TCP."""

    segments: int  # with data that were sent, those sent again included
    resent: int  # segments that were sent again
    rtt_s: float  # shortest round trip that the system has seen

    @classmethod
    def of(cls, plain: socket.socket) -> TcpFigures | None:
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
    return await push(caller, 0)


async def tell_done(caller: Caller) -> None:
    """Say that nothing more will be measured: who only listened ends."""
    await caller.ask(DONE)


async def time_way(caller: Caller, way: Way, rule: Rule, ends: tuple[str, str]) -> Timed:
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
        came = (await push(caller, payload_bytes)).taken
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
        await push(caller, 0)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


async def push(caller: Caller, payload_bytes: int, longest_s: float = _LONGEST_S) -> Hello:
    within_s = longest_s if payload_bytes else _CALL_S
    return await caller.get(_HELLO, PUSH, pieces(payload_bytes), within_s)


def pieces(payload_bytes: int) -> Iterator[bytes]:
    """So many bytes that nothing on their way can compress; at least one piece, be it empty."""
    piece = os.urandom(min(_PIECE, payload_bytes))
    for begin in range(0, max(payload_bytes, 1), _PIECE):
        yield piece[: payload_bytes - begin]


async def _counted(caller: Caller, way: Way) -> TcpFigures | None:
    if way == "pull":
        return await caller.get(_COUNTED, PULL, b'{"bytes": 0}', _CALL_S)
    return None if caller.connection is None else TcpFigures.of(caller.connection.socket)


class LinkService:
    """Serves timed transfers on a transport's port."""

    def __init__(
        self,
        name: str,
        permit: Callable[[Peer], None],
        *,
        most_bytes: int = LEAST_LIMIT,
        measure: Callable[[Order], Awaitable[list[Timed]]] | None = None,
        plan: str = "",
        until: float = 0.0,
    ) -> None:
        self._name, self._permit, self._plan, self._until = name, permit, plan, until
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
        about = (time.time(), self._plan, self._until)
        yield json.dumps(asdict(Hello(self._name, __version__, self._most, taken, *about))).encode()

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
