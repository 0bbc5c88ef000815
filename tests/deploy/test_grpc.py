"""Neighbours over gRPC: what is sent arrives, or the sender hears in time why not."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc.aio
import numpy as np
import pytest

from joulemesh.deploy.fleet.identity import Identity, make_identity
from joulemesh.deploy.messages import Beat, Fetch, Flood, Leave, Part
from joulemesh.deploy.transport import Address, Reason, Roster, TransportError
from joulemesh.deploy.transport.channel import open_channel
from joulemesh.deploy.transport.gate import _private_folder
from joulemesh.deploy.transport.grpc import GrpcTransport
from joulemesh.deploy.transport.lane import REASON
from joulemesh.deploy.transport.link import EXCHANGE, Link
from joulemesh.deploy.wire import greeting
from joulemesh.files.lock import FolderLock
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


def at(other: Device) -> Address:
    return Address(HOME, other.port)


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
        alone = GrpcTransport(identity("ash"), roster, TERMS, Address(HOME, 0))
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
            links = [Link(identity("ash"), "birch", at(other), TERMS) for _ in range(12)]
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
            frozen = asyncio.Event()
            other.transport._streams[0, "control"]._tell_now = lambda: frozen.wait()  # type: ignore
            began = time.monotonic()
            with pytest.raises(TransportError, match=r"too late: birch at .* within 0.3 s"):
                await one.transport.send(1, BEAT, 0.3)
            assert time.monotonic() - began < 1.5

    asyncio.run(talk())


def test_what_a_killed_process_has_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("joulemesh.deploy.transport.gate._LONGEST_PATH", 4096)
    left, fresh, held = (tmp_path / f"joulemesh-in-{n}" for n in ("left", "fresh", "held"))
    for one in (left, fresh, held):
        one.mkdir()
        (one / "in").touch()
    with FolderLock(held):
        for one in (left, held):
            os.utime(one, (0, 0))
        made, lock = _private_folder()
    assert {*tmp_path.iterdir()} == {fresh, held, made}
    assert made.stat().st_mode & 0o777 == 0o700
    lock.__exit__(None, None, None)


def test_a_newer_stream_takes_the_place_of_an_older_one_at_once() -> None:
    """So that what a neighbour has under way is bounded, however many streams it opens."""

    async def talk() -> None:
        async with pair() as (one, other):
            await one.transport.send(1, BEAT, 5)
            claim = b'{"kind":"part","bytes":1000000,"body":{"view":0,"iteration":1,"step":1}}'
            begun = b"\x01" + len(claim).to_bytes(4, "big") + claim
            channel = open_channel(identity("cedar"), "birch", at(other))
            streams = [channel.stream_stream(EXCHANGE)() for _ in range(4)]
            for stream in streams:
                await stream.write(greeting(TERMS, "parts"))
                await stream.read()
                await stream.write(begun)
            for stream in streams[:-1]:
                assert dict(await stream.trailing_metadata())[REASON] == Reason.CLOSED
            assert len(other.transport._streams) == 2
            await channel.close()
            await one.transport.send(1, BEAT, 5)
            assert not other.refusals

    asyncio.run(talk())


def test_what_is_small_cannot_become_large_by_compression(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def talk() -> None:
        async with pair() as (_, other):
            channel = grpc.aio.secure_channel(
                str(at(other)),
                grpc.ssl_channel_credentials(
                    authority().certificate, identity("cedar").key, identity("cedar").certificate
                ),
                options=[("grpc.ssl_target_name_override", "birch")],
                compression=grpc.Compression.Gzip,
            )
            said = [greeting(TERMS, "parts") + b" " * 3_000_000]
            stream = channel.stream_stream(EXCHANGE)(iter(said), timeout=5)
            # Refused with UNIMPLEMENTED, unless this end notices first that nobody listens.
            with pytest.raises(grpc.aio.AioRpcError, match=r"UNIMPLEMENTED|SendMessage"):
                await stream.read()
            assert not other.refusals  # no part of it has come as far as that
            await channel.close()

    asyncio.run(talk())
    assert capfd.readouterr() == ("", "")


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


@pytest.mark.slow
def test_grpc_that_was_imported_first_is_refused_since_it_would_accept_older_tls() -> None:
    code = "import os, grpc\nos.environ.pop('GRPC_SSL_CIPHER_SUITES', None)\n"
    code += "try:\n    import joulemesh.deploy.transport.grpc\n"
    code += "except ValueError as error:\n    print(error)"
    plain = {n: text for n, text in os.environ.items() if not n.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("gRPC was imported before joulemesh.deploy")


def test_a_neighbour_whose_address_is_not_known_tells_it_when_it_connects() -> None:
    met: list[tuple[int, Address]] = []
    ports = free_port(), free_port()

    def one(number: int, knows: Address) -> GrpcTransport:
        roster = Roster(number, NAMES, {1 - number: knows}, Address(HOME, ports[number]))
        listen = Address(HOME, ports[number])
        return GrpcTransport(
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
