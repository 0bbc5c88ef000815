"""Strangers are refused by name on both sides, soon, and nobody else notices."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from joulemesh.deploy.fleet.certificates import Authority, Identity, make_identity
from joulemesh.deploy.messages import Beat, Part
from joulemesh.deploy.transport import Address, Reason, TransportError, gate
from joulemesh.deploy.transport.connection import (
    FRAME_BYTES,
    Endpoint,
    Kind,
    alert_reason,
    client_context,
)
from joulemesh.deploy.transport.tcp import Link
from joulemesh.deploy.wire import WIRE, Terms, greeting
from tests.deploy.neighbours import (
    HOME,
    TERMS,
    Device,
    authority,
    identity,
    pair,
)
from tests.deploy.noise import bombard

SOON_S = 5.0
BEAT = Beat(1, 0, 3, "training")
DAY = dt.timedelta(days=1)


@cache
def elsewhere() -> Authority:
    return Authority.make("orchard")  # the same name: only the key differs


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def shows(own: Identity) -> Identity:
    """An identity of another fleet that trusts this one: its certificate is what is refused."""
    return replace(own, authority=authority().certificate)


Attempt = Callable[[int], Awaitable[Reason]]
"""Tries something at a port; gives the reason that the stranger hears."""


def sends(by: Callable[[], Identity], terms: Terms = TERMS) -> Attempt:
    """A stranger with the right software."""

    async def attempt(port: int) -> Reason:
        link = Link(Endpoint(by(), "birch", Address(HOME, port)), terms)
        try:
            await link.send(BEAT, SOON_S)
        except TransportError as error:
            return error.reason
        finally:
            await link.close()
        raise AssertionError("it was accepted")

    return attempt


def shakes(change: Callable[[ssl.SSLContext], None], *, chain: bool = True) -> Attempt:
    """A stranger with other software, up to the handshake and what follows at once."""

    def attempt(port: int) -> Reason:
        context = ssl.create_default_context(cadata=authority().certificate.decode())
        if chain:
            load_chain(context, identity("ash"))
        change(context)
        try:
            with socket.create_connection((HOME, port), SOON_S) as plain:
                wrapped = context.wrap_socket(plain, server_hostname="birch")
                wrapped.recv(1)
        except ssl.SSLError as error:
            found = alert_reason(error)
            return found[0] if found else Reason.UNREACHABLE
        raise AssertionError("it was accepted")

    return lambda port: asyncio.to_thread(attempt, port)


def load_chain(context: ssl.SSLContext, own: Identity) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        own.save(Path(folder))
        context.load_cert_chain(Path(folder, "certificate.pem"), Path(folder, "key.pem"))


def at_most_1_2(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def says(*frames: tuple[Kind, bytes]) -> Attempt:
    """A neighbour whose software says something else."""

    async def attempt(port: int) -> Reason:
        connection = await Endpoint(identity("cedar"), "birch", Address(HOME, port)).connect()
        try:
            for kind, content in frames:
                connection.write(kind, content)
            async with asyncio.timeout(SOON_S):
                while True:
                    await connection.receive()
        except TransportError as refused:
            return refused.reason
        finally:
            connection.abort()

    return attempt


def says_plainly(text: bytes) -> Attempt:
    """Somebody who speaks something else than TLS; what it hears is that the line goes dead."""

    def attempt(port: int) -> Reason:
        with socket.create_connection((HOME, port), SOON_S) as plain:
            plain.sendall(text)
            with suppress(ConnectionError):
                while plain.recv(1000):
                    pass
        return Reason.NOT_TLS

    return lambda port: asyncio.to_thread(attempt, port)


def is_silent() -> Attempt:
    def attempt(port: int) -> Reason:
        with socket.create_connection((HOME, port), SOON_S) as plain:
            assert plain.recv(1) == b""
        return Reason.LATE

    return lambda port: asyncio.to_thread(attempt, port)


def record(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(4, "big") + content


def parts(packet: bytes) -> Attempt:
    return says((Kind.GREETING, HELLO), (Kind.PARTS, packet))


HELLO = greeting(TERMS)
OTHER_HELLO = json.dumps({**json.loads(HELLO), "wire": WIRE + 1}).encode()
LONG = json.dumps({"kind": "given", "bytes": 10**9, "body": {}}).encode()
STRANGERS: dict[str, tuple[Attempt, Reason]] = {
    "no certificate": (shakes(lambda _: None, chain=False), Reason.NO_CERTIFICATE),
    "another authority": (
        sends(lambda: shows(make_identity(elsewhere(), "ash"))),
        Reason.OTHER_AUTHORITY,
    ),
    "another fleet altogether": (
        sends(lambda: make_identity(elsewhere(), "ash")),
        Reason.OTHER_AUTHORITY,
    ),
    "expired": (
        sends(lambda: make_identity(authority(), "ash", days=1, now=now() - 9 * DAY)),
        Reason.EXPIRED,
    ),
    "not yet valid": (
        sends(lambda: make_identity(authority(), "ash", now=now() + 9 * DAY)),
        Reason.NOT_YET_VALID,
    ),
    "not in the roster": (sends(lambda: identity("yew")), Reason.NOT_IN_ROSTER),
    "not a neighbour": (sends(lambda: identity("elm")), Reason.NOT_A_NEIGHBOUR),
    "an operator": (
        sends(lambda: make_identity(authority(), "ash", role="operator")),
        Reason.NOT_PERMITTED,
    ),
    "another plan": (
        sends(lambda: identity("ash"), replace(TERMS, plan="fedc")),
        Reason.OTHER_PLAN,
    ),
    "another fleet": (
        sends(lambda: identity("ash"), replace(TERMS, fleet="meadow")),
        Reason.OTHER_FLEET,
    ),
    "another version": (says((Kind.GREETING, OTHER_HELLO)), Reason.OTHER_VERSION),
    "an unknown call": (says((Kind.CALL, b"no/such")), Reason.OTHER_VERSION),
    "no greeting": (says((Kind.PARTS, HELLO)), Reason.MALFORMED),
    "a greeting that is none": (says((Kind.GREETING, b"hello")), Reason.MALFORMED),
    "a long greeting": (says((Kind.GREETING, bytes(FRAME_BYTES))), Reason.TOO_LARGE),
    "a long frame": (parts(bytes(FRAME_BYTES + 1)), Reason.TOO_LARGE),
    "a very long frame": (parts(bytes(9 * FRAME_BYTES)), Reason.TOO_LARGE),
    "a huge claim": (parts(record(1, LONG)), Reason.TOO_LARGE),
    "a malformed message": (parts(record(1, b"{}")), Reason.MALFORMED),
    "at most TLS 1.2": (shakes(at_most_1_2), Reason.OLD_TLS),
    "plain HTTP": (says_plainly(b"GET / HTTP/1.1\r\n\r\n"), Reason.NOT_TLS),
    "plain HTTP/2": (says_plainly(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Reason.NOT_TLS),
    "silence": (is_silent(), Reason.LATE),
}
NEIGHBOURS = ("a long frame", "a very long frame", "a huge claim", "a malformed message")


@asynccontextmanager
async def honest_talk() -> AsyncIterator[Device]:
    """A device whose honest neighbour goes on talking to it meanwhile, undisturbed."""
    slowest, count = 0.0, 0

    async def talk(one: Device) -> None:
        nonlocal slowest, count
        while True:
            began = time.monotonic()
            part = Part(0, 1, count, np.full(20_000, count, np.float32))
            await one.transport.send(1, part, SOON_S)
            await one.transport.send(1, BEAT, SOON_S)
            slowest, count = max(slowest, time.monotonic() - began), count + 1
            await asyncio.sleep(0.01)

    async with pair() as (one, other):
        await one.transport.send(1, BEAT, SOON_S)
        task = asyncio.create_task(talk(one))
        try:
            yield other
            more = count + 2
            while count < more:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.01)
            assert slowest < 2.0
            parts = [said.step for _, said in other.inbox if isinstance(said, Part)]
            assert parts[:count] == list(range(count))
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def hear_of_it(other: Device, wanted: set[Reason], host: str = HOME) -> None:
    """Wait until the host has named everything that is wanted, and look at how."""
    async with asyncio.timeout(SOON_S):
        while not {one.reason for one in other.refusals} >= wanted:
            await asyncio.sleep(0.01)
    assert all(one.detail.isprintable() for one in other.refusals)
    assert all(one.address.startswith(host) for one in other.refusals)
    assert {one.reason for one in other.refusals} == wanted


@pytest.mark.slow
@pytest.mark.parametrize("case", STRANGERS)
def test_a_stranger_is_refused_by_name_on_both_sides(
    case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt, reason = STRANGERS[case]

    async def meet() -> None:
        async with honest_talk() as other:
            began = time.monotonic()
            assert await attempt(other.port) is reason
            await hear_of_it(other, {reason})
            assert time.monotonic() - began < SOON_S

    asyncio.run(meet())
    assert capfd.readouterr() == ("", "")


def test_strangers_who_come_all_at_once_are_refused_by_name(
    capfd: pytest.CaptureFixture[str],
) -> None:
    cases = {name: STRANGERS[name] for name in STRANGERS if name != "silence"}
    heard: dict[str, Reason] = {}

    async def come(names: Iterable[str], port: int) -> None:
        for name in names:
            heard[name] = await cases[name][0](port)

    async def meet() -> None:
        async with honest_talk() as other:
            # A neighbour's connections take each other's place: it says one wrong thing at a time.
            others = [[name] for name in cases if name not in NEIGHBOURS]
            async with asyncio.timeout(SOON_S):
                await asyncio.gather(*(come(names, other.port) for names in (NEIGHBOURS, *others)))
            assert heard == {name: reason for name, (_, reason) in cases.items()}
            await hear_of_it(other, {reason for _, reason in cases.values()})

    asyncio.run(meet())
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_a_machine_that_fills_the_gate_keeps_nobody_else_out() -> None:
    async def meet() -> None:
        async with pair() as (one, other):
            place = (HOME, other.port)
            silent = [socket.create_connection(place, 1, ("127.0.0.2", 0)) for _ in range(40)]
            began = time.monotonic()
            await one.transport.send(1, BEAT, SOON_S)
            assert time.monotonic() - began < 2.0
            await hear_of_it(other, {Reason.TOO_MANY}, "127.0.0.2")
            for plain in silent:
                plain.close()

    asyncio.run(meet())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("count", [8, 20])
def test_strangers_with_many_addresses_keep_nobody_out(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a neighbour that is started again, nor an operator, whose address nobody knows."""
    monkeypatch.setattr(gate, "_HANDSHAKE_S", 600.0)  # nobody is waited for until it gives up
    operator = make_identity(authority(), "operator", role="operator")
    strangers = [f"127.0.1.{1 + turn % count}" for turn in range(24 * count)]

    def first_word(port: int) -> bytes:
        """What a device says first to an operator that it has let in."""
        context = client_context(operator)
        with socket.create_connection((HOME, port), 2, ("127.0.2.9", 0)) as plain:
            return context.wrap_socket(plain, server_hostname="birch").recv(1)

    def fill(port: int) -> list[socket.socket]:
        return [socket.create_connection((HOME, port), 2, (one, 0)) for one in strangers]

    async def meet() -> None:
        async with pair() as (one, other):
            silent = await asyncio.to_thread(fill, other.port)
            for _ in range(3):
                assert await asyncio.to_thread(first_word, other.port)
            await one.transport.send(1, BEAT, SOON_S)
            await hear_of_it(other, {Reason.TOO_MANY}, "127.0.1.")
            for plain in silent:
                plain.close()

    asyncio.run(meet())


def test_a_few_random_frames_do_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    async def meet() -> None:
        async with honest_talk() as other:
            await bombard(other.port, frames=40, seed=1)
            assert {Reason.MALFORMED, Reason.NOT_TLS} <= {one.reason for one in other.refusals}
            assert all(sender == 0 for sender, _ in other.inbox)

    asyncio.run(meet())
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_10_000_random_frames_do_no_harm() -> None:
    command = [sys.executable, "-m", "tests.deploy.noise", "10000", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert said["undisturbed"]
    assert said["taken from the noisy one"] == 0
    assert sum(said["refused"].values()) > 5_000
    assert said["reports"] < 100
    assert said["grown_mb"] < 20


@contextmanager
def serving(
    own: Identity, change: Callable[[ssl.SSLContext], None]
) -> Iterator[tuple[int, list[bytes]]]:
    """A server with other software; and what it gets to read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, own)
    change(context)
    heard: list[bytes] = []
    with socket.create_server((HOME, 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listening.accept()
                    with plain, suppress(OSError):
                        plain.settimeout(1)
                        heard.append(context.wrap_socket(plain, server_side=True).recv(1000))

        import threading

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], heard
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(2)


def plainly(_: ssl.SSLContext) -> None:
    pass


def test_a_device_tells_a_stranger_nothing() -> None:
    past, future = now() - 9 * DAY, now() + 9 * DAY
    servers = [
        (identity("birch"), at_most_1_2, Reason.OLD_TLS),
        (identity("cedar"), plainly, Reason.OTHER_NAME),
        (make_identity(elsewhere(), "birch"), plainly, Reason.OTHER_AUTHORITY),
        (make_identity(authority(), "birch", days=1, now=past), plainly, Reason.EXPIRED),
        (make_identity(authority(), "birch", now=future), plainly, Reason.NOT_YET_VALID),
        (make_identity(authority(), "birch", role="operator"), plainly, Reason.BAD_CERTIFICATE),
    ]

    async def meet(ports: list[int]) -> list[Reason]:
        async with asyncio.timeout(SOON_S):
            return await asyncio.gather(*(sends(lambda: identity("ash"))(port) for port in ports))

    with ExitStack() as stack:
        made = [stack.enter_context(serving(own, change)) for own, change, _ in servers]
        found = asyncio.run(meet([port for port, _ in made]))
    assert found == [reason for _, _, reason in servers]
    assert not any(word for _, heard in made for word in heard)


def test_what_is_wrong_with_ones_own_certificate_is_said_first() -> None:
    async def meet() -> None:
        async with pair() as (_, other):
            past = make_identity(authority(), "ash", days=1, now=now() - 9 * DAY)
            late = Endpoint(past, "birch", Address(HOME, other.port))
            with pytest.raises(TransportError, match="the certificate of ash expired on") as found:
                await late.connect()
            assert found.value.reason is Reason.EXPIRED

    asyncio.run(meet())
