"""From a published file's bytes to arrays, trusting nothing that is read.

The "python version" of CIFAR-10 consists of pickles. They are read by an unpickler that can name
nothing but three stand-ins of this file for NumPy's array constructors, so that no code outside
this file can be called by them whatever they hold; anything else in them is refused.
"""

from __future__ import annotations

__all__ = [
    "check_member",
    "cifar_images",
    "idx_array",
    "pickled_batch",
]

import hashlib
import io
import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.sources import Member
from joulemesh.errors import ScenarioError

_REMEDY = "delete it and download it again"

Bytes = NDArray[np.uint8]


def check_member(where: str, raw: bytes, member: Member) -> None:
    """Refuse content that is not, byte for byte, the published one.

    Args:
        where: the file, for the message.
        raw: its unpacked content.
        member: what it should be.

    >>> check_member("a.bin", b"12", Member(("a.bin",), 3, ""))
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: a.bin is truncated: its content ends after 2 of 3 bytes: ...
    """
    if len(raw) < member.size_bytes:
        raise ScenarioError(
            f"{where} is truncated: its content ends after {len(raw):,} of "
            f"{member.size_bytes:,} bytes: {_REMEDY}"
        )
    if len(raw) > member.size_bytes:
        raise ScenarioError(
            f"{where} is not the published {member.name}: its content exceeds "
            f"{member.size_bytes:,} bytes: {_REMEDY}"
        )
    _check_digest(where, "SHA-256", hashlib.sha256(raw).hexdigest(), member.sha256)


def _check_digest(where: str, kind: str, found: str, expected: str) -> None:
    if found != expected:
        raise ScenarioError(
            f"{where} is corrupt or not the published file: {kind} of its content is {found}, "
            f"expected {expected}: {_REMEDY}"
        )


def idx_array(where: str, raw: bytes) -> Bytes:
    """Decode the IDX format of MNIST: 00 00, type, rank, sizes (big-endian), values.

    Args:
        where: the file, for messages.
        raw: its unpacked content.

    Returns:
        uint8 array of the shape that the header gives.

    >>> idx_array("x", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    array([7, 9], dtype=uint8)
    """
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise ScenarioError(
            f"{where} is corrupt: it begins with {raw[:4].hex(' ')}, not with the IDX header "
            f"00 00 08 (unsigned bytes): {_REMEDY}"
        )
    rank = raw[3]
    shape = [int(size) for size in np.frombuffer(raw, ">u4", rank, offset=4)]
    body = len(raw) - 4 - 4 * rank
    if body != math.prod(shape):
        raise ScenarioError(
            f"{where} is truncated or corrupt: its header promises {_product(shape)} and "
            f"{body:,} follow: {_REMEDY}"
        )
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _product(shape: list[int]) -> str:
    """The number of values, with the shape where it can be shown.

    >>> _product([2, 3]), _product([10**9] * 9)
    ('6 values (2x3)', 'more than 10^18 values')
    """
    count = math.prod(shape)
    if count > 10**18:
        return "more than 10^18 values"
    return f"{count:,} values ({'x'.join(map(str, shape))})"


def cifar_images(where: str, raw: bytes) -> tuple[Bytes, Bytes]:
    """Decode a CIFAR-10 batch: records of one label byte and 32x32 red, green and blue planes.

    Args:
        where: the file, for messages.
        raw: its unpacked content.

    Returns:
        Images [n, 32, 32, 3] and labels [n].

    >>> x, y = cifar_images("batch", bytes([9]) + bytes(1024) + bytes([1]) * 1024 + bytes(1024))
    >>> x.shape, x[0, 31, 31], y
    ((1, 32, 32, 3), array([0, 1, 0], dtype=uint8), array([9], dtype=uint8))
    """
    record = 1 + 3 * 32 * 32
    if not raw or len(raw) % record:
        raise ScenarioError(
            f"{where} is truncated or corrupt: {len(raw):,} bytes are not a whole number of "
            f"records of {record:,}: {_REMEDY}"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def pickled_batch(where: str, raw: bytes, md5: str | None = None) -> bytes:
    """Turn a batch of CIFAR-10's "python version" into the records of the binary one.

    Args:
        where: the file, for messages.
        raw: its content.
        md5: the published checksum; None skips it.

    Returns:
        What the ``.bin`` file of the same batch holds.
    """
    if md5 is not None:
        _check_digest(where, "MD5", hashlib.md5(raw, usedforsecurity=False).hexdigest(), md5)
    try:
        batch = _StandInUnpickler(io.BytesIO(raw), encoding="bytes").load()
        pixels = batch[b"data"].array()
        labels = np.array(batch[b"labels"], np.uint8)
        return np.concatenate([labels[:, None], pixels], axis=1).tobytes()
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise ScenarioError(f"{where} is corrupt ({error}): {_REMEDY}") from error


class _StandInArray:
    """Collects what a pickle says of a NumPy array."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> Bytes:
        _, shape, dtype, fortran, raw = self.state
        if dtype.name not in (b"u1", "u1") or not isinstance(raw, bytes):
            raise ScenarioError(f"its array is {dtype.name!r}, not bytes: {_REMEDY}")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _StandInDtype:
    """Collects what a pickle says of a NumPy dtype."""

    def __init__(self, name: bytes | str, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like, of no account to single bytes."""


def _stand_in_reconstruct(*_: Any) -> _StandInArray:
    return _StandInArray()


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _stand_in_reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _stand_in_reconstruct,
    ("numpy", "ndarray"): _StandInArray,
    ("numpy", "dtype"): _StandInDtype,
}


class _StandInUnpickler(pickle.Unpickler):
    """Reads lists, dicts, numbers, bytes and byte arrays; refuses to name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise ScenarioError(
                f"the pickle asks for {module}.{name}, which no image file needs, and was not "
                f"read: {_REMEDY}"
            ) from None
