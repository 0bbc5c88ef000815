"""Devices of a small fleet that talk over TLS on this machine, for tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache

from joulemesh.deploy.fleet.certificates import Authority, Identity, make_identity
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Address, Refusal, Roster
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.wire import Terms

HOME = "127.0.0.1"
NAMES = ("ash", "birch", "cedar", "elm")
TERMS = Terms("orchard", "0123abcd", 300_000, "float32")


@cache
def authority() -> Authority:
    return Authority.make("orchard")


@cache
def identity(name: str) -> Identity:
    return make_identity(authority(), name)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOME, 0))
        return int(taken.getsockname()[1])


@dataclass(eq=False)
class Device:
    """A transport, and what has come in by it."""

    transport: TcpTransport
    port: int
    refusals: list[Refusal]
    inbox: list[tuple[int, Message]] = field(default_factory=list)

    async def came(self, count: int) -> None:
        while len(self.inbox) < count:
            await asyncio.sleep(0.005)


def device(
    number: int,
    ports: Mapping[int, int],
    *,
    listen: int = 0,
    terms: Terms = TERMS,
    by: Identity | None = None,
    rates_bps: Mapping[int, float] | None = None,
) -> Device:
    """A device that has not started. Its neighbours are those whose ports it knows."""
    refusals: list[Refusal] = []
    addresses = {other: Address(HOME, port) for other, port in ports.items()}
    transport = TcpTransport(
        by or identity(NAMES[number]),
        Roster(number, NAMES, addresses),
        terms,
        Address(HOME, listen),
        refused=refusals.append,
        rates_bps=rates_bps,
    )
    return Device(transport, listen, refusals)


@asynccontextmanager
async def started(*devices: Device) -> AsyncIterator[None]:
    try:
        for one in devices:
            inbox = one.inbox
            await one.transport.start(lambda by, said, to=inbox: to.append((by, said)))  # type: ignore[misc]
            one.port = one.transport.port
        yield
    finally:
        for one in devices:
            await one.transport.close()


@asynccontextmanager
async def pair(**given: Terms) -> AsyncIterator[tuple[Device, Device]]:
    """Two neighbours; the second has another one, whose software may be anything."""
    ports = free_port(), free_port()
    one = device(0, {1: ports[1]}, listen=ports[0], **given)  # type: ignore[arg-type]
    other = device(1, {0: ports[0], 2: 1}, listen=ports[1], **given)  # type: ignore[arg-type]
    async with started(one, other):
        yield one, other
