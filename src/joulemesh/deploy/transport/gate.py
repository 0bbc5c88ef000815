"""Who may come in, by TLS 1.3 and certificate, who is refused and why; and calls with answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from joulemesh.deploy.fleet.certificates import Identity, IdentityError, Role, bearer_of
from joulemesh.deploy.fleet.fleet import Host
from joulemesh.deploy.transport import Address, Reason, Refusal, TransportError
from joulemesh.deploy.transport.connection import (
    FRAME_BYTES,
    Connection,
    Endpoint,
    Kind,
    alert_reason,
    prepare,
    server_context,
)

_HANDSHAKE_S = 4.0
_HANDSHAKES, _HANDSHAKES_OF_ONE = 96, 24  # at once: of all strangers; of one machine
_RESOLVE_S = 60.0  # after which the neighbours' names are looked up again
_CONNECTIONS = 8  # of one name
_NO_ROOM_S = 0.05
_QUIET_S, _KINDS = 10.0, 256


@dataclass(frozen=True)
class Peer:
    """Whoever is at the other end of a connection."""

    name: str
    role: Role  # that its certificate gives it
    device: int | None  # its number in the roster; None for an operator
    address: str  # where it comes from
    socket: Any = None  # by which, for looking at


Serve = Callable[[Connection, Peer], Awaitable[None]]
"""Serves a connection until it ends, or raises a `TransportError` to refuse it."""


class Refusals:
    """Counts refusals. The first of a kind is reported at once, later ones at most every 10 s."""

    # A kind is a reason together with the name in the certificate, or the machine where there is
    # none. Of strangers from very many places only the reasons are told apart, so that nobody can
    # fill a journal.

    def __init__(
        self, report: Callable[[Refusal], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._clock = report, clock
        self.counts: Counter[Reason] = Counter()
        """All refusals so far, by reason."""
        self._since: Counter[tuple[Reason, str]] = Counter()
        self._reported: dict[tuple[Reason, str], float] = {}

    def add(self, refusal: Refusal) -> None:
        self.counts[refusal.reason] += 1
        kind = (refusal.reason, refusal.peer or refusal.address.rpartition(":")[0])
        if kind not in self._reported and len(self._reported) >= _KINDS:
            kind = (refusal.reason, "")
        self._since[kind] += 1
        now = self._clock()
        if now - self._reported.get(kind, -_QUIET_S) >= _QUIET_S:
            self._reported[kind] = now
            self._report(replace(refusal, count=self._since.pop(kind)))


class Gate:
    """Takes connections, and has those served whose certificate is of this fleet."""

    def __init__(
        self,
        identity: Identity,
        names: Sequence[str],
        listen: Address,
        serve: Serve,
        refused: Callable[[Refusal], None],
        neighbours: Iterable[str] = (),
    ) -> None:
        self._listen, self._serve, self._refused = listen, serve, refused
        self._numbers = {name: device for device, name in enumerate(names)}
        self._context = server_context(identity)
        self._open: dict[str, list[Connection]] = defaultdict(list)
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._neighbours = set(neighbours)
        self._places = Places()

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(*self._listen, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, place in dict.fromkeys(found):
                self._sockets.append(_listening(family, kind, protocol, place))
        except OSError as error:
            await self.close()
            raise TransportError(
                Reason.UNREACHABLE,
                f"cannot listen on {self._listen}: {error.strerror or error}; correct hosts.csv, "
                "or end the process that uses this port",
            ) from None
        for one in self._sockets:
            self._run(self._accept(one))
        self._run(self._find_neighbours())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, place = await loop.sock_accept(listening)
            except OSError:  # no room for more, until others have gone
                await asyncio.sleep(_NO_ROOM_S)
                continue
            prepare(taken)
            address, connection = str(Address(place[0], place[1])), Connection(self._context)
            self._places.take(place[0], connection)  # tasks may start after many more were taken
            task = self._run(self._admit(taken, connection, place[0], address))
            task.add_done_callback(partial(_close_unless_attached, taken, connection))

    async def _find_neighbours(self) -> None:
        """Know the neighbours by their addresses, as far as their names can be looked up."""
        loop = asyncio.get_running_loop()
        while True:
            found = await asyncio.gather(
                *(loop.getaddrinfo(one, None) for one in self._neighbours), return_exceptions=True
            )
            known = {
                str(place[0])
                for one in found
                if not isinstance(one, BaseException)
                for *_, place in one
            }
            self._places.kept = known or self._places.kept
            await asyncio.sleep(_RESOLVE_S)

    async def _admit(
        self, taken: socket.socket, connection: Connection, host: str, address: str
    ) -> None:
        peer: Peer | None = None
        try:
            try:
                await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, taken)
                async with asyncio.timeout(_HANDSHAKE_S):
                    await connection.shaken
            finally:
                self._places.leave(host, connection)
            peer = self._peer(connection, address)
            await self._serve_one(connection, peer)
        except GaveWayError as error:
            connection.abort()
            self._refused(Refusal(Reason.TOO_MANY, str(error), "", address))
        except TransportError as error:
            connection.refuse(error)
            if error.reason is not Reason.CLOSED:
                name = peer.name if peer else ""
                self._refused(Refusal(error.reason, error.detail, name, address))
        except (OSError, TimeoutError) as error:
            connection.end()
            if peer is None:  # what ends later was lost, or is over
                self._refused(Refusal(*_why(error), "", address))
        except BaseException:
            connection.abort()
            raise

    def _peer(self, connection: Connection, address: str) -> Peer:
        shown = connection.certificate
        names = [name for kind, name in shown.get("subjectAltName", ()) if kind == "DNS"]
        try:
            name, role = bearer_of(names[0] if len(names) == 1 else "")
        except IdentityError:
            raise TransportError(
                Reason.NOT_IN_ROSTER, "its certificate bears no device's name"
            ) from None
        device = self._numbers.get(name) if role == "device" else None
        return Peer(name, role, device, address, connection.socket)

    async def _serve_one(self, connection: Connection, peer: Peer) -> None:
        if peer.role == "device" and peer.device is None:
            raise TransportError(Reason.NOT_IN_ROSTER, f"{peer.name} is not in the roster")
        own = self._open[peer.name]
        own.append(connection)
        if len(own) > _CONNECTIONS:
            own[0].abort()  # of a device that was started again, the oldest has nobody at its end
        try:
            await self._serve(connection, peer)
        finally:
            own.remove(connection)


class GaveWayError(ConnectionError):
    """A handshake that was not over when somebody else needed its place."""


class Places:
    """Handshakes under way: neighbours have places of their own, strangers share theirs."""

    # Nobody is turned away at the gate. Where there is no place, the oldest handshake gives way of
    # the machine that has the most: one that is in earnest is over in a moment, and whoever fills
    # places with silence loses them first.

    def __init__(self) -> None:
        self.kept: set[str] = set()
        """Addresses of neighbours."""
        self._at: dict[str, list[Any]] = {}

    @property
    def total(self) -> int:
        return sum(len(here) for host, here in self._at.items() if host not in self.kept)

    def take(self, host: str, coming: Any) -> None:
        here = self._at.setdefault(host, [])
        if len(here) >= _HANDSHAKES_OF_ONE:
            self._give_way(host)
        elif host not in self.kept and self.total >= _HANDSHAKES:
            strangers = [one for one in self._at if one not in self.kept]
            self._give_way(max(strangers, key=lambda one: len(self._at[one])))
        self._at.setdefault(host, []).append(coming)

    def _give_way(self, host: str) -> None:
        many = len(self._at[host])
        oldest = self._at[host][0]
        self.leave(host, oldest)
        oldest.give_way(GaveWayError(f"{many} handshakes from there were not over"))

    def leave(self, host: str, coming: Any) -> None:
        here = self._at.get(host, [])
        if coming in here:
            here.remove(coming)
        if not here:
            self._at.pop(host, None)


def _close_unless_attached(
    taken: socket.socket, connection: Connection, _: asyncio.Task[None]
) -> None:
    if not connection.is_attached:  # its task was cancelled before it had begun
        taken.close()


def _listening(family: int, kind: int, protocol: int, place: Any) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(place)
        made.listen(128)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _why(error: OSError) -> tuple[Reason, str]:
    if isinstance(error, ssl.SSLError):
        found = alert_reason(error)
        if found is not None:
            return found
        text = (error.reason or str(error)).lower().replace("_", " ")
        return Reason.NOT_TLS, f"its handshake makes no sense ({text})"
    if isinstance(error, TimeoutError):
        return Reason.LATE, f"no handshake within {_HANDSHAKE_S:g} s"
    if isinstance(error, ConnectionResetError):
        return Reason.BROKEN_OFF, "it left; perhaps it does not trust this device's certificate"
    return Reason.NOT_TLS, str(error)


Answer = Callable[[Peer, AsyncIterator[bytes]], AsyncIterator[bytes]]
"""Answers whom and what in pieces: it reads the question to its end, or raises to refuse it."""

Made = TypeVar("Made")

_QUESTION_BYTES = 64 * 1024
_ANSWER_BYTES = 4 * 2**20
_CALL_S = 5.0


async def question(pieces: AsyncIterator[bytes]) -> bytes:
    return await _whole(pieces, _QUESTION_BYTES)


def checked(kind: TypeAdapter[Made], text: bytes, what: str = "question") -> Made:
    try:
        return kind.validate_json(text, strict=True)
    except ValidationError:
        raise TransportError(Reason.MALFORMED, f"the {what} makes no sense") from None


async def _whole(pieces: AsyncIterator[bytes], most: int, sender: str = "") -> bytes:
    found = bytearray()
    async for piece in pieces:
        found += piece
        if len(found) > most:
            raise TransportError(Reason.TOO_LARGE, f"{sender}more than {most:,} bytes at once")
    return bytes(found)


async def serve_calls(
    connection: Connection, peer: Peer, calls: Mapping[str, Answer], name: bytes
) -> None:
    task = asyncio.current_task()
    assert task is not None
    connection.when_lost = task.cancel  # nobody waits for the answer
    while True:
        answer = calls.get(name.decode("ascii", "replace"))
        if answer is None:
            raise TransportError(
                Reason.OTHER_VERSION, "it does not know the call; install the same version on both"
            )
        connection.most = FRAME_BYTES
        async for piece in answer(peer, _coming(connection)):
            for begin in range(0, len(piece), FRAME_BYTES):
                connection.write(Kind.DATA, piece[begin : begin + FRAME_BYTES])
                await connection.drain()
        connection.write(Kind.END)
        await connection.drain()
        kind, name = await connection.receive()
        if kind != Kind.CALL:
            raise TransportError(Reason.MALFORMED, "a frame of a kind that cannot come here")


async def _coming(connection: Connection) -> AsyncIterator[bytes]:
    while True:
        kind, piece = await connection.receive()
        if kind == Kind.END:
            return
        if kind != Kind.DATA:
            raise TransportError(Reason.MALFORMED, "a frame of a kind that cannot come here")
        yield piece


class Caller:
    """Calls a device, over one connection that is opened when it is first needed."""

    def __init__(self, to: Endpoint) -> None:
        self.to = to
        self.connection: Connection | None = None

    async def ask(
        self, call: str, pieces: bytes | Iterable[bytes] = b"", within_s: float = _CALL_S
    ) -> bytes:
        answer = self.stream(call, pieces, within_s)
        return await _whole(answer, _ANSWER_BYTES, f"{self.to}: ")

    async def get(
        self,
        kind: TypeAdapter[Made],
        call: str,
        pieces: bytes | Iterable[bytes] = b"",
        within_s: float = _CALL_S,
    ) -> Made:
        answer = await self.ask(call, pieces, within_s)
        try:
            return checked(kind, answer, "answer")
        except TransportError as error:
            raise self.to.why(error) from None

    async def stream(
        self, call: str, pieces: bytes | Iterable[bytes] = b"", within_s: float = _CALL_S
    ) -> AsyncIterator[bytes]:
        loop, done = asyncio.get_running_loop(), False
        until = loop.time() + within_s
        if self.connection is None:
            self.connection = await self.to.connect()
            self.connection.most = FRAME_BYTES
        connection = self.connection
        all_pieces = (pieces,) if isinstance(pieces, bytes) else pieces
        asking = loop.create_task(_ask(connection, call, all_pieces))
        try:
            while not done:
                async with asyncio.timeout_at(until):
                    kind, piece = await connection.receive()
                if done := kind == Kind.END:
                    break
                if kind != Kind.DATA:
                    raise TransportError(Reason.MALFORMED, "an answer that makes no sense")
                yield piece
        except TimeoutError:
            raise TransportError(Reason.LATE, f"{self.to} answers too late") from None
        except (TransportError, OSError) as error:
            raise self.to.why(error) from None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            if not done:  # what is still to come belongs to no other call
                connection.abort()
                self.connection = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@contextmanager
def calling(identity: Identity, host: Host) -> Iterator[Caller]:
    """Calls of one device, over a connection that is closed at the end."""
    if not host.address:
        raise TransportError(Reason.NAME_NOT_FOUND, f"hosts.csv has no address for {host.name}")
    caller = Caller(Endpoint(identity, host.name, Address(host.address, host.port)))
    try:
        yield caller
    finally:
        caller.close()


async def _ask(connection: Connection, call: str, pieces: Iterable[bytes]) -> None:
    connection.write(Kind.CALL, call.encode())
    for piece in pieces:
        connection.write(Kind.DATA, piece)
        await connection.drain()
    connection.write(Kind.END)
