"""One conversation that a neighbour has begun: packets in, counts of messages taken out."""

from __future__ import annotations

__all__ = ["Stream"]

import asyncio
from collections.abc import Callable
from typing import Any

from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.lane import PACE_S
from joulemesh.deploy.transport.packets import Unpacker, acknowledgement
from joulemesh.deploy.wire import Terms

_PIECE_S = 30.0  # in which the next piece of a message must come


class Stream:
    """Takes the messages of a stream, and tells the sender how many: at once, but not too often.

    Args:
        context: of the call, whose greeting has been read.
        terms: of the fleet.
        take: called with every message.
    """

    def __init__(self, context: Any, terms: Terms, take: Callable[[Message], None]) -> None:
        self._context, self._take = context, take
        self._unpacker = Unpacker(terms)
        self._taken = 0
        self._news = asyncio.Event()
        self._reading: asyncio.Task[Any] | None = None
        self._gives_way = False

    def give_way(self) -> None:
        """End it, since another has taken its place."""
        self._gives_way = True
        if self._reading is not None:
            self._reading.cancel()

    async def serve(self) -> bool:
        """Take messages until the stream ends.

        Returns:
            Whether it was broken off: it ended neither with a goodbye nor amid a message, as it
            does where a message's time is up.

        Raises:
            TransportError: something that came was not to be taken, or it has to give way.
        """
        await self._context.write(acknowledgement(0))  # welcome
        telling = asyncio.get_running_loop().create_task(self._tell())
        telling.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            self._reading = asyncio.current_task()
            return await self._read()
        except asyncio.CancelledError:  # by gRPC, when the call has ended, or by `give_way`
            if self._gives_way:
                raise TransportError(Reason.CLOSED, "a newer stream has its place") from None
            return not self._unpacker.amid
        finally:
            self._reading = None
            telling.cancel()  # and not waited for: gRPC may cancel whoever waits

    async def _read(self) -> bool:
        while True:
            if self._gives_way:
                raise asyncio.CancelledError
            try:
                async with asyncio.timeout(_PIECE_S if self._unpacker.amid else None):
                    packet = await self._context.read()
            except TimeoutError:
                raise TransportError(
                    Reason.LATE, f"nothing for {_PIECE_S:g} s amid a message"
                ) from None
            if not isinstance(packet, bytes):
                return not self._unpacker.amid
            if not packet:  # a goodbye
                return False
            for message in self._unpacker.feed(packet):
                self._take(message)
                self._taken += 1
                self._news.set()

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            await self._tell_now()
            await asyncio.sleep(PACE_S)

    async def _tell_now(self) -> None:
        self._news.clear()
        await self._context.write(acknowledgement(self._taken))
