"""Digests of what is learned from: the samples, and how they are scaled."""

from __future__ import annotations

__all__ = ["array_parts", "data_digest", "digest", "partition_parts", "scaling_digest"]

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from joulemesh.data import Dataset, Partition


def digest(parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of a sequence of byte strings; their lengths count."""
    made = hashlib.sha256()
    for part in parts:
        made.update(memoryview(part).nbytes.to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()


def array_parts(*arrays: ArrayLike) -> list[bytes | memoryview]:
    """Shape, type and contents of arrays."""
    parts: list[bytes | memoryview] = []
    for array in map(np.ascontiguousarray, arrays):
        flat = array.reshape(-1).view(np.uint8)
        parts += [repr((array.shape, array.dtype.str)).encode(), flat.data]
    return parts


def data_digest(data: Dataset) -> str:
    """A digest of a data set's samples and their scaling; its name and place do not matter."""
    arrays: list[ArrayLike] = [data.x_train, data.y_train, data.x_test, data.y_test]
    arrays += [data.mean, data.std]
    if data.holders is not None:
        arrays += [data.holders.of, np.array(data.holders.names)]
    return digest([*array_parts(*arrays), str(data.classes).encode()])


def scaling_digest(data: Dataset) -> str:
    """A digest of how samples are scaled."""
    return digest(array_parts(data.mean, data.std))


def partition_parts(partitions: Sequence[Partition]) -> list[bytes | memoryview]:
    """Who holds which samples, seed after seed."""
    return [
        part
        for partition in partitions
        for part in array_parts(partition.order.astype(np.int32), partition.offsets)
    ]
