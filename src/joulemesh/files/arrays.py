"""Arrays in an ``.npz`` file, read only after what it claims has been found possible.

NumPy allocates what a header claims and unpickles what asks for it. Here a header is a claim: its
size, its type, its shape, and what the archive holds are compared before there is an array.
"""

from __future__ import annotations

__all__ = ["ArrayFile", "open_arrays"]

import io
import math
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import open_bounded
from joulemesh.files.limits import ARRAY_HEADER, ARRAY_LIST

_MEMBER = ".npy"
_KINDS = "biufcSUmM"  # numbers, texts and times
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes
_PIECE = 2**20
_LONGEST_AXIS = 2**48
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    RuntimeError,  # encrypted; too deeply nested
    NotImplementedError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,  # of the parser of headers
    UnicodeError,
)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Guarded:
    """A file that refuses to be read in large pieces, such as an archive's claimed directory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= ARRAY_LIST.now:
            # Python asks for what is left where a directory's place is unknown: a short comment.
            content = self._stream.read(ARRAY_LIST.now + 1)
            if len(content) > ARRAY_LIST.now:
                raise zipfile.BadZipFile(f"its list of arrays has more than {ARRAY_LIST}")
            return content
        return self._stream.read(size)


class ArrayFile:
    """The arrays of an ``.npz`` file.

    Args:
        stream: the file.
        where: its name, for refusals.
        most_bytes: of all arrays that are read.
        packed: whether arrays may be compressed; what is not cannot hold more than the file.
    """

    def __init__(self, stream: IO[bytes], where: str, most_bytes: int, *, packed: bool) -> None:
        self._where, self._most, self._left = where, most_bytes, most_bytes
        self._packings = _PACKINGS if packed else (zipfile.ZIP_STORED,)
        guarded: Any = _Guarded(stream)
        self._archive = zipfile.ZipFile(guarded)
        self._members = {
            info.filename.removesuffix(_MEMBER): info
            for info in self._archive.infolist()
            if info.filename.endswith(_MEMBER)
        }
        self.names = tuple(self._members)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, as far as the archive can hold it; nothing else is read."""
        with self._opened(name) as stream:
            return self._header(name, stream).shape

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def get(self, name: str) -> NDArray[Any] | None:
        """Read an array if there is one of this name."""
        return self[name] if name in self._members else None

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Read an array."""
        with self._opened(name) as stream:
            header = self._header(name, stream)
            if header.nbytes > self._left:
                raise ScenarioError(
                    f"{self._where}: {name} of shape {_short(header.shape)} and type "
                    f"{header.dtype} takes {header.nbytes / 1e9:,.3g} GB, and "
                    f"{self._most / 1e9:,.3g} GB are read of such a file on this machine: store "
                    "less, or use a machine with more memory"
                )
            self._left -= header.nbytes
            # Pages are taken from the system as they are filled, so that a liar costs nothing.
            flat = np.empty(math.prod(header.shape), header.dtype)
            if header.nbytes:
                bytes_of: Any = flat.view(np.uint8)
                _fill(memoryview(bytes_of), stream, name)
        return flat.reshape(header.shape, order="F" if header.fortran else "C")

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        member = self._members.get(name)
        if member is None:
            raise ValueError(f"it holds no array {name!r:.60}")
        if member.compress_type not in self._packings:
            raise ValueError(f"{name} is compressed in a way that such a file does not use")
        with self._archive.open(member) as stream:
            yield stream

    def _header(self, name: str, stream: IO[bytes]) -> _Header:
        """What an array claims to be, if the archive holds just that."""
        version = npy.read_magic(stream)
        width, read = (
            (2, npy.read_array_header_1_0) if version == (1, 0) else (4, npy.read_array_header_2_0)
        )
        length = stream.read(width)
        size = int.from_bytes(length, "little")
        if size > ARRAY_HEADER.now:
            raise ValueError(f"the header of {name} claims {size:,} bytes")
        made = _Header(*read(io.BytesIO(length + stream.read(size))))
        if made.dtype.hasobject:
            raise ScenarioError(
                f"{self._where}: {name} holds Python objects, which are not read: save texts as "
                f"{name}.astype(str) and numbers as {name}.astype(float) or astype(int)"
            )
        if made.dtype.kind not in _KINDS:
            raise ValueError(f"{name} is of type {made.dtype}, not numbers or texts"[:200])
        if any(not 0 <= axis <= _LONGEST_AXIS for axis in made.shape):
            raise ValueError(f"{name} claims the shape {_short(made.shape)}")
        claimed, held = made.nbytes, self._members[name].file_size - stream.tell()
        if claimed != held:
            raise ValueError(
                f"{name} claims {_figure(claimed)} bytes by its shape {_short(made.shape)}, and "
                f"holds {_figure(held)}"
            )
        return made


def _fill(view: memoryview, stream: IO[bytes], name: str) -> None:
    at = 0
    while at < len(view):
        piece = stream.read(min(_PIECE, len(view) - at))
        if not piece:
            raise ValueError(f"{name} ends after {at:,} of {len(view):,} bytes")
        view[at : at + len(piece)] = piece
        at += len(piece)
    if stream.read(1):  # which also compares the archive's checksum
        raise ValueError(f"{name} holds more than it claims")


def _short(shape: tuple[int, ...]) -> str:
    text = str(shape) if len(shape) < 9 else f"of {len(shape)} axes"
    return text if len(text) < 80 else f"{text[:60]}…"


def _figure(count: int) -> str:
    return f"{count:,}" if abs(count) < 10**15 else f"{float(min(count, 10**300)):.1e}"


@contextmanager
def open_arrays(
    source: Path | bytes, most_bytes: int, *, packed: bool = False
) -> Iterator[ArrayFile]:
    """The arrays of an ``.npz`` file, or of the bytes of one.

    Args:
        source: the file, or what it holds.
        most_bytes: that all arrays that are read may take together.
        packed: whether they may be compressed.

    Raises:
        ScenarioError: an array is too large, or holds Python objects.
        ValueError: the file is damaged, or claims what it does not hold.
        OSError: it cannot be read.

    >>> file = io.BytesIO()
    >>> np.savez(file, w=np.arange(3))
    >>> with open_arrays(file.getvalue(), 100) as arrays:
    ...     arrays.names, arrays.shape("w"), arrays["w"]
    (('w',), (3,), array([0, 1, 2]))
    """
    where = "the file" if isinstance(source, bytes) else str(source)
    try:
        with (
            io.BytesIO(source) if isinstance(source, bytes) else open_bounded(source, sys.maxsize)
        ) as stream:
            yield ArrayFile(stream, where, most_bytes, packed=packed)
    except _DAMAGE as error:
        raise ValueError(" ".join(str(error).split())[:160] or type(error).__name__) from None
