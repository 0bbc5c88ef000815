"""Packets: what one frame carries, at most 1 MiB of one message or of several.

A packet is a row of records, each a byte that says what it is, four bytes of length (big-endian),
and its contents: the header of a message, or a piece of its vector. A message is complete before
the next of its lane begins; one that is given up amid its pieces ends with a record that says so.
"""

from __future__ import annotations

__all__ = ["GIVEN_UP", "Unpacker", "packets", "size_of"]

from collections.abc import Iterable, Iterator

from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.connection import FRAME_BYTES
from joulemesh.deploy.wire import HEADER_BYTES, Frame, Incoming, Terms

_HEADER, _PIECE, _GIVEN_UP = 1, 2, 3
_HEAD = 5
GIVEN_UP = bytes([_GIVEN_UP, 0, 0, 0, 0])
"""A packet: nothing more will come of the message that has begun."""


def size_of(frame: Frame) -> int:
    """Bytes that a frame takes in packets, if it fits into one.

    >>> size_of(Frame(b"{}", ()))
    7
    """
    return _HEAD + len(frame.header) + sum(_HEAD + part.nbytes for part in frame.payload)


def packets(frames: Iterable[Frame], most: int = FRAME_BYTES) -> Iterator[tuple[bytes, int]]:
    """Frames in as few packets as possible, in order; and how many each packet completes.

    Args:
        frames: to send.
        most: bytes of a packet, unless a header takes more.

    >>> [(len(packet), whole) for packet, whole in packets([Frame(b"{}", ()), Frame(b"{}", ())])]
    [(14, 2)]
    """
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
    """Makes messages of the packets of one stream.

    Args:
        terms: of the fleet.

    >>> from joulemesh.deploy.messages import Fetch
    >>> from joulemesh.deploy.wire import encode
    >>> terms = Terms("orchard", "abc", 10)
    >>> ((packet, _),) = packets([encode(Fetch(0, 3), terms)])
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
            TransportError: it is too large or malformed; the connection is of no use any more.
        """
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
