"""Records in a file that is only added to: each with its size and its digest.

A record is a mark, the size and the SHA-256 of what follows, JSON with its length, and a file of
safetensors. A last record that is not whole is an append that a crash has cut short.
"""

from __future__ import annotations

__all__ = ["framed", "records_in"]

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as tensors_of

from joulemesh.base.bounded import parse_json
from joulemesh.training.tensors import Arrays

_HEAD = struct.Struct("<8sQ32s")  # mark, bytes of the record, their SHA-256
_LENGTH = struct.Struct("<Q")  # of the JSON, which begins the record
_MARK = b"JMNODE1\n"
_PIECE = 2**20


def framed(record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A record as bytes.

    >>> import io
    >>> written = framed({"n": 1}, {"w": np.arange(3)})
    >>> [(plain, arrays["w"].tolist()) for plain, arrays, _ in records_in(io.BytesIO(written))]
    [({'n': 1}, [0, 1, 2])]
    """
    text = json.dumps(record).encode()
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    body = b"".join([_LENGTH.pack(len(text)), text, tensors_of(held)])
    return _HEAD.pack(_MARK, len(body), hashlib.sha256(body).digest()) + body


def records_in(file: IO[bytes]) -> Iterator[tuple[dict[str, Any], Arrays, int]]:
    """The records of a file: plain values, arrays, and where each ends.

    Raises:
        ValueError: one that was whole has changed.
    """
    for body, end in _bodies(file):
        try:
            start = _LENGTH.size + _LENGTH.unpack_from(body)[0]
            plain, arrays = parse_json(body[_LENGTH.size : start]), read_tensors(body[start:])
        except (struct.error, SafetensorError) as error:
            raise ValueError(str(error)) from None
        yield plain, arrays, end


def _bodies(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """The records of a log, up to one that is not whole, which only the last may be.

    Raises:
        ValueError: there are whole ones after it: the disk has not kept what was written.
    """
    size, at = file.seek(0, os.SEEK_END), 0
    while at < size:
        body = _body_at(file, at, size)
        if body is None:
            break
        at = file.tell()
        yield body, at
    file.seek(at)
    while at < size:
        piece = file.read(_PIECE)
        found = piece.find(_MARK)
        if found < 0:
            at = size if at + len(piece) >= size else at + len(piece) - len(_MARK)
        elif _body_at(file, at + found, size) is not None:
            raise ValueError(f"what stands before byte {at + found:,} has changed")
        else:
            at += found + 1
        file.seek(at)


def _body_at(file: IO[bytes], at: int, size: int) -> bytes | None:
    """The record that begins somewhere, if it is whole."""
    file.seek(at)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    mark, length, digest = _HEAD.unpack(head)
    if mark != _MARK or length > size - file.tell():
        return None
    body = file.read(length)
    return body if hashlib.sha256(body).digest() == digest else None
