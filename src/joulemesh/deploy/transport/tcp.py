"""Neighbours over TCP: mutual TLS 1.3, neighbours only, one acknowledgement for each message.

A packet is what one frame carries: a row of records, each a byte for its kind, four bytes of length
(big-endian), and its contents: the header of a message, or a piece of its vector. A message is
complete before the next of its lane begins; one that is given up amid its pieces ends with a record
that says so.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import (
    Address,
    Reason,
    Receive,
    Refusal,
    Roster,
    TransportError,
)
from joulemesh.deploy.transport.connection import FRAME_BYTES, Connection, Endpoint, Kind
from joulemesh.deploy.transport.gate import Answer, Gate, Peer, Refusals, serve_calls
from joulemesh.deploy.wire import (
    HEADER_BYTES,
    Frame,
    Incoming,
    Terms,
    check_greeting,
    encode,
    greeting,
)

_HEADER, _PIECE, _GIVEN_UP = 1, 2, 3
_HEAD = 5
GIVEN_UP = bytes([_GIVEN_UP, 0, 0, 0, 0])
"""A packet: nothing more will come of the message that has begun."""


def size_of(frame: Frame) -> int:
    """Bytes that a frame takes in packets, if it fits into one."""
    return _HEAD + len(frame.header) + sum(_HEAD + part.nbytes for part in frame.payload)


def packets(frames: Iterable[Frame], most: int = FRAME_BYTES) -> Iterator[tuple[bytes, int]]:
    """Frames in as few packets as possible, in order; and how many each packet completes."""
    parts: list[bytes | memoryview] = []
    room, whole = most, 0
    for kind, content, last in _records(frames):
        start = 0
        while True:
            least = content.nbytes if kind == _HEADER else 1
            if room < _HEAD + least and parts:
                yield b"".join(parts), whole
                parts, room, whole = [], most, 0
            room = max(room, _HEAD + least)
            end = min(content.nbytes, start + room - _HEAD)
            parts += [bytes([kind]) + (end - start).to_bytes(4, "big"), content[start:end]]
            room -= _HEAD + end - start
            start = end
            if start == content.nbytes:
                break
        whole += last
    if parts:
        yield b"".join(parts), whole


def _records(frames: Iterable[Frame]) -> Iterator[tuple[int, memoryview, bool]]:
    for frame in frames:
        pieces = [part for part in frame.payload if part.nbytes]
        yield _HEADER, memoryview(frame.header), not pieces
        for part in pieces:
            yield _PIECE, part, part is pieces[-1]


class Unpacker:
    """Makes messages of the packets of one stream."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._coming: Incoming | None = None

    @property
    def amid(self) -> bool:
        return self._coming is not None

    def feed(self, packet: bytes) -> list[Message]:
        view, start, whole = memoryview(packet), 0, []
        while start < len(packet):
            end = start + _HEAD + int.from_bytes(view[start + 1 : start + _HEAD], "big")
            if start + _HEAD > len(packet) or end > len(packet):
                raise TransportError(Reason.MALFORMED, "a record reaches beyond its packet")
            self._take(view[start], view[start + _HEAD : end])
            if self._coming is not None and not self._coming.missing:
                whole.append(self._coming.message())
                self._coming = None
            start = end
        return whole

    def _take(self, kind: int, content: memoryview) -> None:
        if kind == _HEADER and self._coming is None:
            if content.nbytes > HEADER_BYTES:
                raise TransportError(
                    Reason.TOO_LARGE,
                    f"a header of {content.nbytes:,} bytes; {HEADER_BYTES:,} are read",
                )
            self._coming = Incoming(bytes(content), self._terms)
        elif kind == _PIECE and self._coming is not None:
            self._coming.add(content)
        elif kind == _GIVEN_UP and self._coming is not None and not content:
            self._coming = None
        else:
            raise TransportError(Reason.MALFORMED, "a record of a kind that cannot come here")


PACE_S = 0.001
"""Between small packets on their way: each costs both ends as much as many messages in it would."""

_TOGETHER_S = 0.005  # messages that go together take no longer than this on the planned link
_PACKET_S = 0.1  # nor does a packet, since others must wait until it is through
_WINDOW_S = 0.25  # nor what is under way, since signs of life queue behind it
_USUAL_BPS = 20e6  # of a link of which nothing is known
_LEAST_BYTES, _MOST_BYTES = 64 * 1024, 4 * FRAME_BYTES
_MANY = 64
_PAUSE_S, _LONGEST_PAUSE_S, _REFUSED_PAUSE_S = 0.1, 1.0, 0.5
_WELCOME_S = 5.0
_PASSING = (Reason.UNREACHABLE, Reason.LATE, Reason.CLOSED)
_OF_ONE_MESSAGE = (Reason.MALFORMED, Reason.TOO_LARGE)


def bytes_in(seconds: float, rate_bps: float | None, most: int) -> int:
    """How many bytes a link carries in some seconds; enough for a header, and no more than most."""
    carried = seconds * (_USUAL_BPS if rate_bps is None else rate_bps) / 8
    return int(min(max(carried, _LEAST_BYTES), most))


@dataclass(eq=False)
class _Waiting:
    """A message that waits to be sent, or to be acknowledged."""

    frame: Frame
    size: int
    done: asyncio.Future[None]


class _Lane:
    """Messages of one kind, in order: those that are short and urgent, or those with vectors."""

    def __init__(self, kind: Kind, together: int, most: int) -> None:
        self.kind, self._together, self._most = kind, min(together, most), most
        self.queue: deque[_Waiting] = deque()
        self.begun: deque[_Waiting] = deque()
        """Sent, wholly or in part, and not acknowledged."""
        self.in_flight = 0
        self._pieces: Iterator[tuple[bytes, int]] | None = None
        self._long: _Waiting | None = None

    @property
    def wanted(self) -> bool:
        while self.queue and self.queue[0].done.done():
            self.queue.popleft()
        return self._pieces is not None or bool(self.queue)

    @property
    def few(self) -> bool:
        waiting = sum(one.size for one in islice(self.queue, _MANY))
        return self._pieces is None and waiting < self._together

    def packet(self) -> tuple[bytes, int]:
        if self._pieces is None:
            batch = self._batch()
            self.begun.extend(batch)
            self._long = batch[0] if batch[0].size > self._most else None
            self._pieces = packets((one.frame for one in batch), self._most)
        elif self._long is not None and self._long.done.done():
            self._pieces = None  # its time is up
            return GIVEN_UP, 1
        found = next(self._pieces)
        # A batch of small messages is one packet; of a long one the last completes it.
        if self._long is None or found[1]:
            self._pieces = None
        return found

    def _batch(self) -> list[_Waiting]:
        batch, room = [self.queue.popleft()], self._together
        room -= batch[0].size
        while self.queue and self.queue[0].size <= room:
            one = self.queue.popleft()
            if not one.done.done():
                batch.append(one)
                room -= one.size
        return batch

    def again(self) -> None:
        """What was not acknowledged is sent again on the next connection."""
        self.queue.extendleft(one for one in reversed(self.begun) if not one.done.done())
        self.begun.clear()
        self._pieces, self.in_flight = None, 0


class Link:
    """Sends messages to one neighbour."""

    # What waits goes together, in one frame with one acknowledgement. What was not acknowledged
    # when a connection ended is sent again, as long as somebody still waits for it.

    def __init__(
        self,
        to: Endpoint,
        terms: Terms,
        rate_bps: float | None = None,
        at: Address | None = None,
    ) -> None:
        self._to, self._terms, self._greeting = to, terms, greeting(terms, at)
        together = FRAME_BYTES if rate_bps is None else int(rate_bps / 8 * _TOGETHER_S)
        most = bytes_in(_PACKET_S, rate_bps, FRAME_BYTES)
        self._window = (
            _MOST_BYTES if rate_bps is None else bytes_in(_WINDOW_S, rate_bps, _MOST_BYTES)
        )
        self._lanes = [_Lane(kind, together, most) for kind in (Kind.CONTROL, Kind.PARTS)]
        self._sent: deque[tuple[_Lane, int, int]] = deque()  # (lane, bytes, messages completed)
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trouble: TransportError | None = None
        self._ready = False

    async def send(self, message: Message, within_s: float) -> None:
        loop, frame = asyncio.get_running_loop(), encode(message, self._terms)
        one = _Waiting(frame, size_of(frame), loop.create_future())
        self._lanes[bool(frame.payload)].queue.append(one)
        self._work.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        clock = loop.call_later(within_s, self._give_up, one, within_s)
        try:
            await one.done
        finally:
            clock.cancel()
            one.done.cancel()  # nobody waits any more: nothing is sent again

    def _give_up(self, one: _Waiting, within_s: float) -> None:
        if not one.done.done():
            late = TransportError(
                Reason.LATE if self._ready else Reason.UNREACHABLE,
                f"{self._to} has acknowledged nothing within {within_s:g} s",
            )
            one.done.set_exception(self._trouble or late)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._fail(TransportError(Reason.CLOSED, "this device is stopping"))

    def _fail(self, error: TransportError) -> None:
        for lane in self._lanes:
            for one in (*lane.begun, *lane.queue):
                if not one.done.done():
                    one.done.set_exception(error)
            lane.queue.clear()
            lane.again()

    async def _run(self) -> None:
        pause_s = _PAUSE_S
        while True:
            await self._wanted()
            try:
                connection = await self._connect()
            except TransportError as error:
                failure, self._trouble = error, error
            else:
                pause_s, self._trouble, self._ready = _PAUSE_S, None, True
                failure = await self._converse(connection)
                self._ready = False
            self._settle(failure)
            if failure.reason in _PASSING:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                await asyncio.sleep(_REFUSED_PAUSE_S)

    async def _wanted(self) -> None:
        while not any(lane.wanted for lane in self._lanes):
            self._work.clear()
            await self._work.wait()

    async def _connect(self) -> Connection:
        connection = await self._to.connect()
        try:
            async with asyncio.timeout(_WELCOME_S):
                connection.write(Kind.GREETING, self._greeting)
                kind, _ = await connection.receive()
        except TimeoutError:
            connection.abort()
            raise TransportError(Reason.LATE, f"{self._to} does not answer a greeting") from None
        except (TransportError, OSError) as error:
            connection.abort()
            raise self._to.why(error) from None
        if kind != Kind.TAKEN:
            connection.abort()
            raise TransportError(Reason.OTHER_VERSION, f"{self._to} speaks another format")
        return connection

    async def _converse(self, connection: Connection) -> TransportError:
        loop = asyncio.get_running_loop()
        both = [loop.create_task(one) for one in (self._write(connection), self._read(connection))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            reading = both[1]
            if not reading.done():  # whoever reads may know why writing has ended
                await asyncio.wait([reading], timeout=0.1)
            ended = next(one for one in reversed(both) if one.done())
            error = ended.exception()
            assert isinstance(error, (TransportError, OSError)), error
            return self._to.why(error)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            connection.close()

    async def _write(self, connection: Connection) -> None:
        loop, soonest = asyncio.get_running_loop(), 0.0
        while True:
            lane = await self._next_lane()
            if self._sent and loop.time() < soonest and lane.few:
                await asyncio.sleep(soonest - loop.time())
                continue
            soonest = loop.time() + PACE_S
            packet, whole = lane.packet()
            lane.in_flight += len(packet)
            self._sent.append((lane, len(packet), whole))
            connection.write(lane.kind, packet)
            await connection.drain()

    async def _next_lane(self) -> _Lane:
        while True:
            for lane in self._lanes:
                if lane.wanted and lane.in_flight < self._window:
                    return lane
            self._work.clear()
            await self._work.wait()

    async def _read(self, connection: Connection) -> None:
        settled = 0
        while True:
            kind, content = await connection.receive()
            taken = int.from_bytes(content, "big")
            if kind != Kind.TAKEN or taken > settled + len(self._sent):
                raise TransportError(Reason.MALFORMED, "an acknowledgement that makes no sense")
            while settled < taken:
                lane, size, whole = self._sent.popleft()
                settled += 1
                lane.in_flight -= size
                for _ in range(whole):
                    one = lane.begun.popleft()
                    if not one.done.done():
                        one.done.set_result(None)
            self._work.set()

    def _settle(self, failure: TransportError) -> None:
        """After a connection has ended: who hears of it, and what is sent again."""
        if failure.reason in _OF_ONE_MESSAGE and self._sent:
            culprit = next((one for one in self._sent[0][0].begun if not one.done.done()), None)
            if culprit is not None:
                culprit.done.set_exception(failure)
        elif failure.reason not in _PASSING:
            self._fail(failure)
        self._sent.clear()
        for lane in self._lanes:
            lane.again()


_GREETING_S = 4.0
_UNMET_S = 1.0  # until it is tried again whether the address of a neighbour is known
_PIECE_S = 30.0  # in which the next piece of a message must come


class TcpTransport:
    """A device's connections to its neighbours (see `Transport`)."""

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
        self._gate = Gate(identity, roster.names, listen, self._serve, self._refusals.add, near)
        self._rates = dict(rates_bps or {})
        self._links: dict[int, Link] = {}
        self._incoming: dict[int, Inbound] = {}
        self._receive: Receive | None = None
        self.calls: dict[str, Answer] = {}
        """What is served besides: by name, what answers whom."""

    @property
    def port(self) -> int:
        return self._gate.port

    @property
    def refusals(self) -> Mapping[Reason, int]:
        return self._refusals.counts

    async def start(self, receive: Receive) -> None:
        """Begin to listen; messages are handed over one at a time."""
        self._receive = receive
        bearer = self._identity.bearer
        if fault := bearer.fault():
            early = dt.datetime.now(dt.UTC) < bearer.not_before
            raise TransportError(Reason.NOT_YET_VALID if early else Reason.EXPIRED, fault)
        await self._gate.open()

    async def send(self, to: int, message: Message, within_s: float) -> None:
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
            endpoint = Endpoint(self._identity, name, address)
            link = Link(endpoint, self._terms, self._rates.get(to), self._roster.at)
            self._links[to] = link
        await link.send(message, within_s)

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await self._gate.close()

    async def _serve(self, connection: Connection, peer: Peer) -> None:
        connection.write(Kind.WELCOME)
        try:
            async with asyncio.timeout(_GREETING_S):
                kind, first = await connection.receive()
        except TimeoutError:
            raise TransportError(Reason.LATE, f"no greeting within {_GREETING_S:g} s") from None
        if kind == Kind.CALL:
            await serve_calls(connection, peer, self.calls, first)
        elif kind == Kind.GREETING:
            device = self._greeted(peer, first)
            incoming = Inbound(connection, self._terms, lambda said: self._hand_over(device, said))
            await self._take(device, incoming)
        else:
            raise TransportError(Reason.MALFORMED, "no greeting")

    def _greeted(self, peer: Peer, greeting: bytes) -> int:
        """The neighbour that has greeted, if it is one and has the same plan."""
        if peer.device is None:
            raise TransportError(Reason.NOT_PERMITTED, "an operator cannot take part")
        if peer.device not in self._roster.addresses:
            raise TransportError(
                Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {self._roster.name}"
            )
        at = check_greeting(greeting, self._terms)
        if at is not None and not self._addresses[peer.device].host:
            self._addresses[peer.device] = at
            self._met(peer.device, at)
        return peer.device

    async def _take(self, device: int, incoming: Inbound) -> None:
        """Take messages. A new connection takes the place of an older one at once."""
        # So no neighbour can have more than one message under way in each lane.
        older = self._incoming.get(device)
        self._incoming[device] = incoming
        if older is not None:
            older.give_way()
        try:
            await incoming.serve()
        finally:
            if self._incoming.get(device) is incoming:
                del self._incoming[device]

    def _hand_over(self, device: int, message: Message) -> None:
        assert self._receive is not None
        self._receive(device, message)


class Inbound:
    """Takes the messages of a connection, and tells how many frames: at once, but not too often."""

    def __init__(
        self, connection: Connection, terms: Terms, take: Callable[[Message], None]
    ) -> None:
        self._connection, self._hand_over = connection, take
        self._lanes = {kind: Unpacker(terms) for kind in (Kind.CONTROL, Kind.PARTS)}
        self._taken, self._soonest = 0, 0.0
        self._telling: asyncio.TimerHandle | None = None

    def give_way(self) -> None:
        self._connection.refuse(TransportError(Reason.CLOSED, "a newer connection has its place"))

    async def serve(self) -> None:
        self._connection.most = FRAME_BYTES
        self._tell()  # that the greeting is accepted
        try:
            while True:
                await self._take_one()
        finally:
            if self._telling is not None:
                self._telling.cancel()

    async def _take_one(self) -> None:
        amid = any(lane.amid for lane in self._lanes.values())
        try:
            async with asyncio.timeout(_PIECE_S if amid else None):
                kind, packet = await self._connection.receive()
        except TimeoutError:
            raise TransportError(
                Reason.LATE, f"nothing for {_PIECE_S:g} s amid a message"
            ) from None
        if kind not in (Kind.CONTROL, Kind.PARTS):
            raise TransportError(Reason.MALFORMED, "a frame of a kind that cannot come here")
        for message in self._lanes[Kind(kind)].feed(packet):
            self._hand_over(message)
        self._taken += 1
        if self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_at(max(self._soonest, loop.time()), self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._soonest = asyncio.get_running_loop().time() + PACE_S
        self._connection.write(Kind.TAKEN, self._taken.to_bytes(8, "big"))
