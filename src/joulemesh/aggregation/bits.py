"""Bits of a message: what quantised numbers become, what they weigh, and how they travel.

A message of b bits carries whole numbers from −(2^(b−1) − 1) to 2^(b−1) − 1 and, for every bucket
of 64 of them, the exponent of a power of two that is their unit. Since the unit is a power of two,
every operation but the rounding to whole numbers is exact: NumPy, JAX and PyTorch give equal bits,
and numbers that have been quantised once are not changed when they are quantised again.
"""

from __future__ import annotations

__all__ = ["BUCKET", "LEAST", "MOST", "WIDTHS", "Width", "bits_of", "pack", "quantised", "unpack"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTHS = (16, 8, 4)
"""Bits of a number that is quantised."""
BUCKET = 64
"""Numbers that share a unit."""
LEAST, MOST = -120, 120
"""Exponents of units; what is smaller is sent as zero, what is larger is cut off."""
_EXPONENT_BITS = 8
_NOT_FINITE = 127  # in the place of an exponent
_NO_NUMBER = 8  # four bits that are no number: the end of an odd count

Vector = NDArray[Any]


def bits_of(wire: str) -> int:
    """Bits of a quantised number, by the name of the type in which it travels; 0 for others.

    >>> bits_of("int8"), bits_of("float16"), bits_of("")
    (8, 0, 0)
    """
    return int(wire.removeprefix("int")) if wire.startswith("int") else 0


@dataclass(frozen=True)
class Width:
    """How wide quantised messages are.

    Attributes:
        parameters: numbers of the whole vector.
        bits: of each, in the message.

    >>> Width(1000, 8).vector_bits(), Width(1000, 4).vector_bits(), Width(10, 4).vector_bits(3)
    (8128.0, 4128.0, 72.0)
    """

    parameters: int
    bits: int

    @property
    def wire(self) -> str:
        """The name of the type in which numbers travel."""
        return f"int{self.bits}"

    def vector_bits(self, parts: int = 1) -> float:
        """Bits of the whole vector, cut (as by ``numpy.array_split``) into so many messages."""
        short, longer = divmod(self.parameters, parts)
        return longer * self._message_bits(short + 1) + (parts - longer) * self._message_bits(short)

    def _message_bits(self, numbers: int) -> float:
        """Whole bytes of numbers, and an exponent for every bucket."""
        return float(8 * -(-numbers * self.bits // 8) + _EXPONENT_BITS * -(-numbers // BUCKET))


def _in_buckets(values: Vector) -> Vector:
    """[..., buckets, 64], filled up with zeros."""
    more = -values.shape[-1] % BUCKET
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)])
    return padded.reshape(*values.shape[:-1], -1, BUCKET)


def _whole(buckets: Vector, bits: int) -> tuple[Vector, NDArray[np.int64]]:
    """The whole numbers of buckets, and the exponents of their units; zeros below the least."""
    most, largest = np.abs(buckets).max(axis=-1, initial=0.0), 2 ** (bits - 1) - 1
    # The largest of a bucket is at least half of the largest whole number: quantising a second
    # time finds the same unit.
    exponent = np.frexp(most)[1].astype(np.int64) - (bits - 1)
    none = (most == 0) | (exponent < LEAST)
    exponent = np.clip(exponent, LEAST, MOST)
    with np.errstate(invalid="ignore"):
        whole = np.rint(np.ldexp(buckets, -exponent[..., None]))
    whole = np.where(none[..., None], 0.0, np.clip(whole, -largest, largest))
    return np.where(np.isfinite(most)[..., None], whole + 0.0, np.nan), exponent  # no −0


def quantised(values: Vector, bits: int) -> Vector:
    """What receivers get of some vectors [..., P], in the type of the sender.

    >>> quantised(np.array([1.0, 0.3, -0.02]), 4).tolist()
    [1.0, 0.25, 0.0]
    """
    if values.dtype == object:
        return np.array([one.rounded() for one in values], dtype=object)
    if not values.size:
        return values.copy()
    whole, exponent = _whole(_in_buckets(values), bits)
    found = np.ldexp(whole, exponent[..., None]).reshape(*values.shape[:-1], -1)
    return found[..., : values.shape[-1]].astype(values.dtype)


def pack(values: Vector, bits: int) -> NDArray[np.uint8]:
    """A vector as bytes: the exponents of its buckets, then the whole numbers.

    >>> packed = pack(np.array([1.0, 0.25, 0.0]), 4)
    >>> packed.nbytes, unpack(packed, 4, np.float64).tolist()
    (3, [1.0, 0.25, 0.0])
    """
    whole, exponent = _whole(_in_buckets(values), bits)
    lost = ~np.isfinite(whole).all(axis=-1)
    exponents = np.where(lost, _NOT_FINITE, exponent).astype(np.int8)
    numbers = np.nan_to_num(whole).reshape(-1)[: values.size]
    if bits == 4:
        nibbles = numbers.astype(np.int8).view(np.uint8) & 15
        nibbles = np.append(nibbles, np.full(values.size % 2, _NO_NUMBER, np.uint8))
        content = nibbles[0::2] | (nibbles[1::2] << 4)
    else:
        content = numbers.astype(f"<i{bits // 8}").view(np.uint8)
    return np.concatenate([exponents.view(np.uint8), content])


def unpack(packed: NDArray[np.uint8], bits: int, dtype: Any) -> Vector:
    """The vector that `pack` has packed.

    Raises:
        ValueError: it has packed none.
    """
    full = BUCKET * bits // 8 + 1
    buckets = -(-packed.size // full)
    content = packed[buckets:]
    if bits == 4:
        nibbles = np.stack([content & 15, content >> 4], axis=-1).reshape(-1)
        if nibbles.size and nibbles[-1] == _NO_NUMBER:
            nibbles = nibbles[:-1]
        numbers: Vector = ((nibbles.astype(np.int8) ^ 8) - 8).astype(dtype)
    else:
        if content.size % (bits // 8):
            raise ValueError(f"{content.size} bytes hold no whole count of {bits}-bit numbers")
        numbers = content.view(f"<i{bits // 8}").astype(dtype)
    if -(-numbers.size // BUCKET) != buckets:
        raise ValueError(f"{packed.size} bytes are no message of {bits}-bit numbers")
    exponents = packed[:buckets].view(np.int8).astype(np.int64)
    units = np.ldexp(1.0, np.clip(exponents, LEAST, MOST))
    units = np.where(exponents == _NOT_FINITE, np.nan, units)
    made: Vector = numbers * np.repeat(units, BUCKET)[: numbers.size]
    return made.astype(dtype)
