"""The way to one neighbour: a connection that is opened again whenever it ends, and its lanes."""

from __future__ import annotations

__all__ = ["PACE_S", "Link", "bytes_in"]

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Address, Reason, TransportError
from joulemesh.deploy.transport.connection import FRAME_BYTES, Connection, Endpoint, Kind
from joulemesh.deploy.transport.packets import GIVEN_UP, packets, size_of
from joulemesh.deploy.wire import Frame, Terms, encode, greeting

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
    """How many bytes a link carries in some seconds; enough for a header, and no more than most.

    >>> bytes_in(0.1, 10e6, 2**20)
    125000
    """
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
        """Is there anything to send for which somebody waits?"""
        while self.queue and self.queue[0].done.done():
            self.queue.popleft()
        return self._pieces is not None or bool(self.queue)

    @property
    def few(self) -> bool:
        """Is there room for more in the next packet?"""
        waiting = sum(one.size for one in islice(self.queue, _MANY))
        return self._pieces is None and waiting < self._together

    def packet(self) -> tuple[bytes, int]:
        """The next packet, and how many messages it completes."""
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
    """Sends messages to one neighbour.

    What waits goes together, in one frame with one acknowledgement. What was not acknowledged
    when a connection ended is sent again, as long as somebody still waits for it.

    Args:
        to: the neighbour.
        terms: of the fleet.
        rate_bps: of the link, as planned; None if it does not matter.
        at: where this device listens, for a neighbour that was not told.
    """

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
        """Deliver a message.

        Raises:
            TransportError: it was not acknowledged in time, or was refused.
        """
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
        """Give up everything that waits."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._fail(TransportError(Reason.CLOSED, "this device is stopping"))

    def _fail(self, error: TransportError) -> None:
        """Tell everybody who waits."""
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
        """Write and read until the connection ends; why it has."""
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
        """The lane that may send: what is short and urgent does not wait behind long vectors."""
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
