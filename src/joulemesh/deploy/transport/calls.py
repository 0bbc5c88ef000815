"""Calls: a question and its answer over a connection, both in pieces; one at a time."""

from __future__ import annotations

__all__ = ["Answer", "Caller", "checked", "question", "serve_calls"]

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.connection import FRAME_BYTES, Connection, Endpoint, Kind
from joulemesh.deploy.transport.gate import Peer

Answer = Callable[[Peer, AsyncIterator[bytes]], AsyncIterator[bytes]]
"""Answers whom and what in pieces: it reads the question to its end, or raises to refuse it."""

Made = TypeVar("Made")

_QUESTION_BYTES = 64 * 1024
_ANSWER_BYTES = 4 * 2**20
_CALL_S = 5.0


async def question(pieces: AsyncIterator[bytes]) -> bytes:
    """A question as a whole.

    Raises:
        TransportError: it is too long.
    """
    return await _whole(pieces, _QUESTION_BYTES)


def checked(kind: TypeAdapter[Made], text: bytes, what: str = "question") -> Made:
    """What a question or an answer says, as a value of a type.

    Raises:
        TransportError: it does not make sense.
    """
    try:
        return kind.validate_json(text, strict=True)
    except ValidationError:
        raise TransportError(Reason.MALFORMED, f"the {what} makes no sense") from None


async def _whole(pieces: AsyncIterator[bytes], most: int) -> bytes:
    found = bytearray()
    async for piece in pieces:
        found += piece
        if len(found) > most:
            raise TransportError(Reason.TOO_LARGE, f"more than {most:,} bytes at once")
    return bytes(found)


async def serve_calls(
    connection: Connection, peer: Peer, calls: Mapping[str, Answer], name: bytes
) -> None:
    """Serve one call after another, beginning with one whose name has been read."""
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
    """Calls a device, over one connection that is opened when it is first needed.

    Args:
        to: the device.

    Raises (all methods):
        TransportError: the device cannot be reached, refuses, or answers too late.
    """

    def __init__(self, to: Endpoint) -> None:
        self.to = to
        self.connection: Connection | None = None

    async def ask(
        self, call: str, pieces: bytes | Iterable[bytes] = b"", within_s: float = _CALL_S
    ) -> bytes:
        """The answer as a whole."""
        return await _whole(self.stream(call, pieces, within_s), _ANSWER_BYTES)

    async def get(
        self,
        kind: TypeAdapter[Made],
        call: str,
        pieces: bytes | Iterable[bytes] = b"",
        within_s: float = _CALL_S,
    ) -> Made:
        """The answer as a value of a type."""
        try:
            return checked(kind, await self.ask(call, pieces, within_s), "answer")
        except TransportError as error:
            raise self.to.why(error) from None

    async def stream(
        self, call: str, pieces: bytes | Iterable[bytes] = b"", within_s: float = _CALL_S
    ) -> AsyncIterator[bytes]:
        """The pieces of an answer, as they come."""
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
        except OSError as error:
            raise self.to.why(error) from None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            if not done:  # what is still to come belongs to no other call
                connection.abort()
                self.connection = None

    def close(self) -> None:
        """End the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


async def _ask(connection: Connection, call: str, pieces: Iterable[bytes]) -> None:
    connection.write(Kind.CALL, call.encode())
    for piece in pieces:
        connection.write(Kind.DATA, piece)
        await connection.drain()
    connection.write(Kind.END)
