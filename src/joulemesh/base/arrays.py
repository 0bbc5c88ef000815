"""Arrays in an ``.npz`` file, of which nothing is unpickled."""

from __future__ import annotations

__all__ = ["ArrayFile", "open_arrays", "shape_in"]

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile as ArrayFile

# RuntimeError is zipfile's for a file said to be encrypted or packed in an unknown way
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError)


@contextmanager
def open_arrays(source: Path | bytes) -> Iterator[ArrayFile]:
    """The arrays of an ``.npz`` file, or of the bytes of one; ValueError if it is damaged."""
    try:
        file = np.load(io.BytesIO(source) if isinstance(source, bytes) else source)
        if not isinstance(file, ArrayFile):
            raise ValueError("it holds one array")
        with file:
            yield file
    except _DAMAGE as error:
        raise ValueError(" ".join(str(error).split())[:160] or type(error).__name__) from None


def shape_in(file: ArrayFile, name: str) -> tuple[int, ...]:
    """The shape of an array, of which only the header is read."""
    assert file.zip is not None  # while it is open
    with file.zip.open(f"{name}.npy") as stream:
        old = npy.read_magic(stream) == (1, 0)
        read = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
        return tuple(read(stream)[0])
