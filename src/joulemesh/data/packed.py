"""What is packed in a file: gzip, xz and tarballs, unpacked a little at a time.

A small file may unpack to any size, and may ask for any amount of memory in its headers. Nothing
here holds more than was asked for.
"""

from __future__ import annotations

__all__ = ["DAMAGE", "Opened", "open_unpacked", "tar_members", "unpacked"]

import gzip
import io
import lzma
import os
import sys
import tarfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import require_regular
from joulemesh.files.limits import (
    PICKLED_BATCH,
    TARBALL,
    TARBALL_HEADER,
    TARBALL_MEMBERS,
    XZ,
)

_BLOCK_BYTES = 1 << 20
_PACKED_BYTES = 1 << 14  # read at once of a packed file: its place tells how much is left
_REMEDY = "delete it and download it again"
DAMAGE = (zlib.error, lzma.LZMAError, gzip.BadGzipFile, tarfile.TarError)


class Opened(NamedTuple):
    """A file that is being unpacked.

    Attributes:
        stream: what is packed in it.
        file: the file itself.
        size: its bytes.
    """

    stream: IO[bytes]
    file: io.FileIO
    size: int

    @property
    def share(self) -> float:
        """How much of the file has been read, from 0 to 1."""
        return min(1.0, self.file.tell() / self.size) if self.size else 1.0


class _LittleAtATime(io.FileIO):
    """A file of which no more than a block is read at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        asked = _PACKED_BYTES if size is None or size < 0 else min(size, _PACKED_BYTES)
        return super().read(asked) or b""


class _Xz(io.RawIOBase):
    """What is packed in an xz file; unlike ``lzma.open``, with a limit on its dictionary."""

    def __init__(self, file: io.FileIO) -> None:
        self._file, self._unpacker, self._trailing = file, _unpacker(), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            piece = self._piece(len(buffer))
            if piece is None:
                return 0
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)

    def _piece(self, most: int) -> bytes | None:
        """Some bytes, none yet, or None at the end."""
        packed = b""
        if self._unpacker.eof:  # another stream may follow, or what is to be ignored
            packed = self._unpacker.unused_data or self._file.read(_PACKED_BYTES)
            if not packed:
                return None
            self._unpacker, self._trailing = _unpacker(), True
        elif self._unpacker.needs_input:
            packed = self._file.read(_PACKED_BYTES)
            if not packed:
                raise EOFError("it ends within a stream")
        try:
            piece = self._unpacker.decompress(packed, most)
        except lzma.LZMAError as error:
            if "Memory usage limit" in str(error):
                raise lzma.LZMAError(f"unpacking it takes more than {XZ} of memory") from None
            if self._trailing:  # no stream at all: padding, or what lzma.open ignores as well
                return None
            raise
        self._trailing = False
        return piece


def _unpacker() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ.now)


@contextmanager
def open_unpacked(path: Path) -> Iterator[Opened]:
    """Open a file to read what is packed in it: raw, gzip or xz, told by its first bytes.

    Raises:
        ScenarioError: it is a device or a pipe.
        OSError: it cannot be read.
    """
    size = require_regular(path, sys.maxsize)
    with _LittleAtATime(path) as file:
        head = file.read(6)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        stream: Any = file
        if head[:2] == b"\x1f\x8b":
            stream = gzip.GzipFile(fileobj=file)
        elif head == b"\xfd7zXZ\x00":
            stream = io.BufferedReader(_Xz(file), _BLOCK_BYTES)
        else:
            stream = io.BufferedReader(_plain(file), _BLOCK_BYTES)
        yield Opened(stream, file, size)


def _plain(file: io.FileIO) -> io.FileIO:
    """The same file without the limit of a block."""
    return io.FileIO(file.fileno(), closefd=False)


def unpacked(path: Path, limit_bytes: int) -> bytes:
    """Read a file, raw or in gzip or xz (told by its first bytes, not by its name).

    Args:
        path: the file.
        limit_bytes: stop soon after this many; the file is then too long to be what it should.

    Returns:
        The content; what there is of it where the file was cut short.
    """
    chunks, size = [], 0
    try:
        with open_unpacked(path) as opened:
            while size <= limit_bytes and (chunk := opened.stream.read(_BLOCK_BYTES)):
                chunks.append(chunk)
                size += len(chunk)
    except EOFError:
        pass  # cut short: check_member reports how far it goes
    except DAMAGE as error:
        raise ScenarioError(f"{path} is corrupt ({error}): {_REMEDY}") from error
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error}): check its permissions") from error
    return b"".join(chunks)


class _Forward:
    """A tarball as ``tarfile`` reads it, forward only, with an allowance for headers.

    A name or an attribute may claim gigabytes; ``tarfile`` would read them all.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._at = stream, 0
        self.allowance = TARBALL_HEADER.now

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read a header."""
        if not 0 <= size <= self.allowance:
            raise tarfile.ReadError(f"the headers of a member exceed {TARBALL_HEADER}")
        self.allowance -= size
        return self.content(size)

    def content(self, size: int) -> bytes:
        """Read so many bytes, or what is left."""
        pieces: list[bytes] = []
        left = size
        while left and (piece := self._stream.read(min(left, _BLOCK_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        self._advance(size - left)
        return b"".join(pieces)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go forward."""
        if whence or offset < self._at:
            raise tarfile.ReadError("a member has a negative size")
        while offset > self._at and (
            piece := self._stream.read(min(offset - self._at, _BLOCK_BYTES))
        ):
            self._advance(len(piece))
        return self._at

    def _advance(self, size: int) -> None:
        self._at += size
        if self._at > TARBALL.now:
            raise tarfile.ReadError(f"it unpacks to more than {TARBALL}")


def tar_members(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Read the members with these base names from a tarball, in one pass, writing nothing.

    Args:
        path: the tarball, plain or in gzip or xz.
        wanted: base names, the folder within the tarball left out.

    Returns:
        Content by base name, for those that there are.
    """
    try:
        with open_unpacked(path) as opened:
            return dict(_members(_Forward(opened.stream), wanted))
    except EOFError as error:
        raise ScenarioError(
            f"{path} is truncated: it ends after {path.stat().st_size:,} bytes: {_REMEDY}"
        ) from error
    except RecursionError:
        raise ScenarioError(f"{path} is corrupt (headers without end): {_REMEDY}") from None
    except DAMAGE as error:
        raise ScenarioError(f"{path} is corrupt or truncated ({error}): {_REMEDY}") from error
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error}): check its permissions") from error


def _members(forward: _Forward, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    file: Any = forward
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for count, entry in enumerate(tar):
            if count == TARBALL_MEMBERS.now:
                raise tarfile.ReadError(f"it holds more than {TARBALL_MEMBERS}")
            name = entry.name.rsplit("/", 1)[-1]
            if entry.isreg() and not entry.issparse() and name in wanted:
                size = min(entry.size, PICKLED_BATCH.now)
                content = forward.content(size)
                if len(content) < size:
                    raise EOFError
                yield name, content
            forward.allowance = TARBALL_HEADER.now
