"""One conversation with a neighbour: a stream of packets out, counts of messages taken back."""

from __future__ import annotations

__all__ = ["PACE_S", "REASON", "Lane", "Waiting"]

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc.aio

from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.packets import acknowledged, packets, size_of
from joulemesh.deploy.wire import Frame

REASON = "joulemesh-reason"
"""Of the metadata that ends a stream: the `Reason` in words."""

PACE_S = 0.001
"""Between small packets on their way: each costs both ends as much as many messages in it would."""

_MANY = 64
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_REFUSED_PAUSE_S = 0.5
_GOODBYE_S = 0.2
_OF_ONE_MESSAGE = (Reason.MALFORMED, Reason.TOO_LARGE)


@dataclass(eq=False)
class Waiting:
    """A message that waits to be sent, or to be acknowledged."""

    frame: Frame
    size: int
    done: asyncio.Future[None]


class _GivenUpError(Exception):
    """A long message's deadline has passed amid its pieces."""


class Lane:
    """Sends frames in order over one stream, which is opened again whenever it ends.

    What waits goes together, in one packet with one acknowledgement. What was not acknowledged
    when a stream ended is sent again, as long as somebody still waits for it.

    Args:
        open_stream: begins a stream, which may wait for a connection.
        greeting: the stream's first packet.
        together: bytes of messages that may go in one packet.
        most: bytes of a packet.
    """

    def __init__(
        self, open_stream: Callable[[], Any], greeting: bytes, *, together: int, most: int
    ) -> None:
        self._open, self._greeting = open_stream, greeting
        self._together, self._most = min(together, most), most
        self._queue: deque[Waiting] = deque()
        self._unacknowledged: deque[Waiting] = deque()
        self._work, self._welcome = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_s = _PAUSE_S
        self._leaving = False
        self.ready = False
        """Has the neighbour accepted the stream?"""

    def put(self, frame: Frame) -> Waiting:
        """Send a frame; its future is done when it was acknowledged or refused."""
        loop = asyncio.get_running_loop()
        one = Waiting(frame, size_of(frame), loop.create_future())
        self._queue.append(one)
        self._work.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        return one

    async def close(self) -> None:
        """Say goodbye, and give up everything that waits."""
        self._leaving = True
        self._work.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_GOODBYE_S)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.fail(TransportError(Reason.CLOSED, "this device is stopping"))

    def fail(self, error: TransportError) -> None:
        """Tell everybody who waits."""
        for one in (*self._unacknowledged, *self._queue):
            if not one.done.done():
                one.done.set_exception(error)
        self._unacknowledged.clear()
        self._queue.clear()

    async def _run(self) -> None:
        while True:
            await self._wanted()
            if self._leaving:
                return
            stream = self._open()
            failure = await self._converse(stream)
            self.ready = False
            self._settle(failure)
            if failure is not None:
                await asyncio.sleep(_REFUSED_PAUSE_S)
            else:
                await asyncio.sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    async def _wanted(self) -> None:
        """Wait until there is a message that somebody waits for, or it is time to leave."""
        while not self._leaving:
            while self._queue and self._queue[0].done.done():
                self._queue.popleft()
            if self._queue:
                return
            self._work.clear()
            await self._work.wait()

    async def _converse(self, stream: Any) -> TransportError | None:
        """Write and read until the stream ends; why, if the neighbour has said so."""
        self._welcome.clear()
        both = {
            asyncio.ensure_future(self._write(stream)),
            asyncio.ensure_future(self._read(stream)),
        }
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            given_up = any(one.done() and _is_given_up(one) for one in both)
            return None if given_up else await _verdict(stream)
        finally:
            stream.cancel()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _write(self, stream: Any) -> None:
        await stream.write(self._greeting)
        await self._welcome.wait()  # whoever writes on while it is refused does not hear why
        loop, soonest = asyncio.get_running_loop(), 0.0
        while True:
            await self._wanted()
            if self._leaving:
                await stream.write(b"")  # goodbye
                return
            if self._unacknowledged and loop.time() < soonest and self._few():
                await asyncio.sleep(soonest - loop.time())
                continue
            soonest = loop.time() + PACE_S
            batch = self._batch()
            self._unacknowledged.extend(batch)
            for packet in packets((one.frame for one in batch), self._most):
                if batch[0].done.done() and batch[0].size > self._most:
                    raise _GivenUpError
                await stream.write(packet)

    def _few(self) -> bool:
        """Is there room for more in the next packet?"""
        return sum(one.size for one in islice(self._queue, _MANY)) < self._together

    def _batch(self) -> list[Waiting]:
        """The messages that go together: at least one."""
        batch, room = [self._queue.popleft()], self._together
        room -= batch[0].size
        while self._queue and self._queue[0].size <= room:
            one = self._queue.popleft()
            if not one.done.done():
                batch.append(one)
                room -= one.size
        return batch

    async def _read(self, stream: Any) -> None:
        settled = 0
        while (answer := await stream.read()) is not grpc.aio.EOF:
            self.ready, self._pause_s = True, _PAUSE_S
            self._welcome.set()
            taken = acknowledged(answer)
            while settled < taken and self._unacknowledged:
                one = self._unacknowledged.popleft()
                settled += 1
                if not one.done.done():
                    one.done.set_result(None)

    def _settle(self, failure: TransportError | None) -> None:
        """After a stream has ended: who hears of it, and what is sent again."""
        if failure is not None and failure.reason not in _OF_ONE_MESSAGE:
            self.fail(failure)
            return
        again = [one for one in self._unacknowledged if not one.done.done()]
        self._unacknowledged.clear()
        if failure is not None and again:
            again.pop(0).done.set_exception(failure)
        self._queue.extendleft(reversed(again))


def _is_given_up(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and isinstance(task.exception(), _GivenUpError)


async def _verdict(stream: Any) -> TransportError | None:
    """Why a neighbour has ended a stream; None if it has not, or did not say."""
    if not stream.done():
        stream.cancel()
    code, detail = await stream.code(), await stream.details()
    said = {str(key): value for key, value in await stream.trailing_metadata() or ()}
    if said.get(REASON) == Reason.CLOSED:  # another stream has taken its place, or it is stopping
        return None
    with suppress(ValueError):
        return TransportError(Reason(said.get(REASON, "")), detail or "")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return TransportError(
            Reason.OTHER_VERSION, "it does not know this call; install the same version on both"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return TransportError(Reason.TOO_LARGE, detail or "")
    return None
