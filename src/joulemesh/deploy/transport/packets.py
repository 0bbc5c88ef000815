"""Packets: what one write of a stream carries, at most 1 MiB of one message or of several.

A packet is a row of records, each a byte that says what it is, four bytes of length (big-endian),
and its contents: the header of a message, or a piece of its vector. A message is complete before
the next begins, and is acknowledged by the count of those taken so far.
"""

from __future__ import annotations

__all__ = ["PACKET_BYTES", "Unpacker", "acknowledged", "acknowledgement", "packets", "size_of"]

from collections.abc import Iterable, Iterator

from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.wire import HEADER_BYTES, Frame, Incoming, Terms

PACKET_BYTES = 1024 * 1024

_HEADER, _PIECE = 1, 2
_HEAD = 5
_COUNT = 8


def size_of(frame: Frame) -> int:
    """Bytes that a frame takes in packets, if it fits into one.

    >>> size_of(Frame(b"{}", ()))
    7
    """
    return _HEAD + len(frame.header) + sum(_HEAD + part.nbytes for part in frame.payload)


def packets(frames: Iterable[Frame], most: int = PACKET_BYTES) -> Iterator[bytes]:
    """Frames in as few packets as possible, in order.

    Args:
        frames: to send.
        most: bytes of a packet, unless a header takes more.

    >>> [len(packet) for packet in packets([Frame(b"{}", ()), Frame(b"{}", ())])]
    [14]
    """
    parts: list[bytes | memoryview] = []
    room = most
    for kind, content in _records(frames):
        start = 0
        while start < content.nbytes or not content.nbytes:
            least = content.nbytes if kind == _HEADER else min(content.nbytes - start, 1)
            if room < _HEAD + least and parts:
                yield b"".join(parts)
                parts, room = [], most
            room = max(room, _HEAD + least)
            end = min(content.nbytes, start + room - _HEAD)
            parts += [bytes([kind]) + (end - start).to_bytes(4, "big"), content[start:end]]
            room -= _HEAD + end - start
            start = end
            if not content.nbytes:
                break
    if parts:
        yield b"".join(parts)


def _records(frames: Iterable[Frame]) -> Iterator[tuple[int, memoryview]]:
    for frame in frames:
        yield _HEADER, memoryview(frame.header)
        for part in frame.payload:
            if part.nbytes:
                yield _PIECE, part


class Unpacker:
    """Makes messages of the packets of one stream.

    Args:
        terms: of the fleet.

    >>> from joulemesh.deploy.messages import Fetch
    >>> from joulemesh.deploy.wire import encode
    >>> terms = Terms("orchard", "abc", 10)
    >>> (packet,) = packets([encode(Fetch(0, 3), terms)])
    >>> Unpacker(terms).feed(packet)
    [Fetch(view=0, iteration=3, gift=False)]
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._coming: Incoming | None = None

    @property
    def amid(self) -> bool:
        """Has a message begun that is not complete?"""
        return self._coming is not None

    def feed(self, packet: bytes) -> list[Message]:
        """Take a packet; give the messages that it completes.

        Raises:
            TransportError: it is too large or malformed; the stream is of no use any more.
        """
        if len(packet) > PACKET_BYTES:
            raise TransportError(
                Reason.TOO_LARGE, f"a packet of {len(packet):,} bytes; at most {PACKET_BYTES:,}"
            )
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
        else:
            raise TransportError(Reason.MALFORMED, "a record of a kind that cannot come here")


def acknowledgement(taken: int) -> bytes:
    """Says how many messages of a stream have been taken.

    >>> acknowledged(acknowledgement(3))
    3
    """
    return taken.to_bytes(_COUNT, "big")


def acknowledged(answer: bytes) -> int:
    """How many messages the other side has taken.

    Raises:
        TransportError: it says something else.
    """
    if len(answer) != _COUNT:
        raise TransportError(Reason.MALFORMED, "an acknowledgement that is not a count")
    return int.from_bytes(answer, "big")
