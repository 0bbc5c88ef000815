"""Neighbours over TLS: what is sent arrives, or the sender hears in time why not."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from joulemesh.deploy.fleet.certificates import Identity, make_identity
from joulemesh.deploy.messages import Beat, Fetch, Flood, Leave, Part
from joulemesh.deploy.transport import Address, Reason, Roster, TransportError
from joulemesh.deploy.transport.connection import Connection, Endpoint, Kind
from joulemesh.deploy.transport.tcp import Link, TcpTransport
from joulemesh.deploy.wire import greeting
from tests.deploy.neighbours import (
    HOME,
    NAMES,
    TERMS,
    Device,
    authority,
    device,
    free_port,
    identity,
    pair,
    started,
)

BEAT = Beat(1, 0, 3, "training", ((1, 2),))


def part(step: int, numbers: int = 250) -> Part:
    return Part(0, 1, step, np.full(numbers, step, np.float32))


def to(other: Device, by: str) -> Endpoint:
    return Endpoint(identity(by), "birch", Address(HOME, other.port))


def test_messages_arrive_with_their_sender() -> None:
    async def talk() -> None:
        async with pair() as (one, other):
            await one.transport.send(1, BEAT, 5)
            await other.transport.send(0, Flood(1, 1, 1, Leave(0, "empty")), 5)
            await one.transport.send(1, part(7, 300_000), 5)
            assert other.inbox[0] == (0, BEAT)
            assert one.inbox == [(1, Flood(1, 1, 1, Leave(0, "empty")))]
            sender, long = other.inbox[1]
            assert isinstance(long, Part)
            assert (sender, long.step) == (0, 7)
            assert np.array_equal(long.payload, np.full(300_000, 7, np.float32))
            assert not one.refusals + other.refusals

    asyncio.run(talk())


def test_what_waits_for_a_neighbour_goes_together_and_in_order() -> None:
    async def talk() -> None:
        async with pair() as (one, other):
            sends = [one.transport.send(1, part(step), 5) for step in range(200)]
            await asyncio.gather(*sends)
            steps = [said.step for _, said in other.inbox if isinstance(said, Part)]
            assert steps == list(range(200))

    asyncio.run(talk())


def test_a_neighbour_that_starts_late_gets_what_waits_for_it() -> None:
    async def talk() -> None:
        ports = free_port(), free_port()
        one = device(0, {1: ports[1]}, listen=ports[0])
        other = device(1, {0: ports[0]}, listen=ports[1])
        async with started(one):
            waiting = asyncio.create_task(one.transport.send(1, BEAT, 10))
            await asyncio.sleep(0.3)
            async with started(other):
                began = time.monotonic()
                await waiting
                assert time.monotonic() - began < 2.5
                assert other.inbox == [(0, BEAT)]

    asyncio.run(talk())


def test_a_neighbour_that_was_started_again_is_reached_within_seconds() -> None:
    async def talk() -> None:
        ports = free_port(), free_port()
        one = device(0, {1: ports[1]}, listen=ports[0])
        async with started(one):
            for _ in range(2):
                other = device(1, {0: ports[0]}, listen=ports[1])
                async with started(other):
                    began = time.monotonic()
                    await one.transport.send(1, BEAT, 5)
                    assert time.monotonic() - began < 2.5
                    assert other.inbox == [(0, BEAT)]

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (Address(HOME, 1), Reason.UNREACHABLE),
        (Address("no-such-device.invalid", 7400), Reason.NAME_NOT_FOUND),
    ],
)
def test_a_neighbour_that_cannot_be_reached_is_said_so(address: Address, reason: Reason) -> None:
    async def talk() -> None:
        roster = Roster(0, NAMES, {1: address})
        alone = TcpTransport(identity("ash"), roster, TERMS, Address(HOME, 0))
        await alone.start(lambda *_: None)
        try:
            with pytest.raises(TransportError) as caught:
                await alone.send(1, BEAT, 0.5)
            assert caught.value.reason is reason
            assert address.host in str(caught.value)
        finally:
            await alone.close()

    asyncio.run(talk())


def test_a_port_that_is_taken_is_refused_in_a_line() -> None:
    async def talk() -> None:
        one = device(0, {})
        async with started(one):
            with pytest.raises(TransportError, match=r"cannot listen on .* in use; correct hosts"):
                async with started(device(1, {}, listen=one.port)):
                    pass

    asyncio.run(talk())


def test_one_name_cannot_hold_more_than_a_few_connections() -> None:
    """The oldest goes, so that a device that is started again and again always gets in."""

    async def talk() -> None:
        async with pair() as (one, other):
            links = [Link(to(other, "ash"), TERMS) for _ in range(12)]
            for link in links:
                await link.send(BEAT, 5)
            gate = other.transport._gate
            async with asyncio.timeout(5):
                while len(gate._open["ash"]) > 8:
                    await asyncio.sleep(0.01)
            await one.transport.send(1, BEAT, 5)
            for link in links:
                await link.close()
            assert not other.refusals

    asyncio.run(talk())


def test_a_neighbour_that_freezes_is_late_and_no_more() -> None:
    async def talk() -> None:
        async with pair() as (one, other):
            await one.transport.send(1, BEAT, 5)
            other.transport._incoming[0]._tell = lambda: None  # type: ignore[method-assign]
            began = time.monotonic()
            with pytest.raises(TransportError, match=r"too late: birch at .* within 0.3 s"):
                await one.transport.send(1, BEAT, 0.3)
            assert time.monotonic() - began < 1.5

    asyncio.run(talk())


def test_a_newer_connection_takes_the_place_of_an_older_one_at_once() -> None:
    """So that what a neighbour has under way is bounded, however often it connects."""

    async def until_it_ends(one: Connection) -> None:
        while True:
            assert (await one.receive())[0] == Kind.TAKEN

    async def begin(other: Device) -> Connection:
        claim = b'{"kind":"part","bytes":1000000,"body":{"view":0,"iteration":1,"step":1}}'
        connection = await to(other, "cedar").connect()
        connection.write(Kind.GREETING, greeting(TERMS))
        await connection.receive()
        connection.write(Kind.PARTS, b"\x01" + len(claim).to_bytes(4, "big") + claim)
        return connection

    async def talk() -> None:
        async with pair() as (one, other):
            await one.transport.send(1, BEAT, 5)
            connections = [await begin(other) for _ in range(4)]
            for older in connections[:-1]:
                with pytest.raises(TransportError) as ended:
                    await until_it_ends(older)
                assert ended.value.reason is Reason.CLOSED
            assert len(other.transport._incoming) == 2
            connections[-1].abort()
            await one.transport.send(1, BEAT, 5)
            assert not other.refusals

    asyncio.run(talk())


def test_a_device_whose_own_certificate_is_not_valid_does_not_start() -> None:
    async def start(by: Identity) -> None:
        async with started(device(0, {}, by=by)):
            pass

    day, now = dt.timedelta(days=1), dt.datetime.now(dt.UTC)
    with pytest.raises(TransportError, match="certificate expired: the certificate of ash expired"):
        asyncio.run(start(make_identity(authority(), "ash", days=1, now=now - 9 * day)))
    with pytest.raises(TransportError, match=r"not yet valid: .*; set the clock"):
        asyncio.run(start(make_identity(authority(), "ash", now=now + 9 * day)))


class SlowLink:
    """Passes bytes on at a rate, as a narrow link with a short queue does."""

    def __init__(self, to: int, bytes_per_s: float) -> None:
        self._to, self._rate = to, bytes_per_s

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, HOME, 0, limit=2**14)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near = writer.get_extra_info("socket")
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**15)
        with suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(HOME, self._to)
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**13):
            await asyncio.sleep(len(data) / self._rate)
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.slow
def test_a_sign_of_life_does_not_wait_behind_a_long_vector() -> None:
    async def talk() -> None:
        terms = replace(TERMS, parameters=2_000_000)
        other = device(1, {0: 1}, terms=terms, rates_bps={0: 16e6})
        async with started(other):
            port = await SlowLink(other.port, 2e6).open()
            one = device(0, {1: port}, terms=terms, rates_bps={1: 16e6})
            async with started(one):
                await one.transport.send(1, BEAT, 5)
                long = asyncio.create_task(one.transport.send(1, part(1, 2_000_000), 30))
                await asyncio.sleep(0.5)
                waits = []
                while not long.done():
                    began = time.monotonic()
                    await one.transport.send(1, BEAT, 10)
                    waits.append(time.monotonic() - began)
                await long
                assert len(waits) > 4
                assert max(waits[:-1]) < 1.0

    asyncio.run(talk())


@pytest.mark.slow
def test_a_long_vector_whose_time_is_up_is_given_up_amid() -> None:
    """And does not keep the link from what follows."""

    async def talk() -> None:
        terms = replace(TERMS, parameters=4_000_000)
        other = device(1, {0: 1}, terms=terms)
        async with started(other):
            port = await SlowLink(other.port, 2e6).open()
            one = device(0, {1: port}, terms=terms)
            async with started(one):
                await one.transport.send(1, part(0), 5)
                with pytest.raises(TransportError, match="too late"):
                    await one.transport.send(1, part(1, 4_000_000), 1.0)
                began = time.monotonic()
                await one.transport.send(1, part(2), 10)
                assert time.monotonic() - began < 5.0
                steps = [said.step for _, said in other.inbox if isinstance(said, Part)]
                assert steps == [0, 2]
                assert not other.refusals

    asyncio.run(talk())


def test_a_neighbour_whose_address_is_not_known_tells_it_when_it_connects() -> None:
    met: list[tuple[int, Address]] = []
    ports = free_port(), free_port()

    def one(number: int, knows: Address) -> TcpTransport:
        roster = Roster(number, NAMES, {1 - number: knows}, Address(HOME, ports[number]))
        listen = Address(HOME, ports[number])
        return TcpTransport(
            identity(NAMES[number]), roster, TERMS, listen, met=lambda *said: met.append(said)
        )

    async def talk() -> None:
        first, later = one(0, Address("", 7100)), one(1, Address(HOME, ports[0]))
        came: list[int] = []
        await first.start(lambda sender, message: came.append(sender))
        await later.start(lambda sender, message: came.append(sender))
        try:
            with pytest.raises(TransportError, match="address of birch is not known"):
                await first.send(1, Fetch(0, 1), 0.1)
            await later.send(0, Fetch(0, 1), 5.0)
            await first.send(1, Fetch(0, 1), 5.0)
        finally:
            await first.close()
            await later.close()
        assert came == [1, 0]

    asyncio.run(talk())
    assert met == [(1, Address(HOME, ports[1]))]
