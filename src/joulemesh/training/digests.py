"""Digests of what is learned: the samples, how they are scaled, and what the model computes."""

from __future__ import annotations

__all__ = ["array_parts", "data_digest", "digest", "model_digest", "scaling_digest"]

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from joulemesh.data import Dataset
from joulemesh.models.core import Model

_ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]+")


def digest(parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of a sequence of byte strings; their lengths count.

    >>> digest([b"ab"]) == digest([b"a", b"b"])
    False
    """
    made = hashlib.sha256()
    for part in parts:
        made.update(memoryview(part).nbytes.to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()


def array_parts(*arrays: Any) -> list[bytes | memoryview]:
    """Shape, type and contents of arrays."""
    parts: list[bytes | memoryview] = []
    for array in map(np.ascontiguousarray, arrays):
        flat: Any = array.reshape(-1).view(np.uint8)
        parts += [repr((array.shape, array.dtype.str)).encode(), memoryview(flat)]
    return parts


def data_digest(data: Dataset) -> str:
    """A digest of a data set's samples and their scaling; its name and place do not matter.

    >>> from joulemesh.data import load
    >>> data_digest(load("digits")) == data_digest(load("digits"))
    True
    """
    arrays = [data.x_train, data.y_train, data.x_test, data.y_test, data.mean, data.std]
    if data.holders is not None:
        arrays += [data.holders.of, np.array(data.holders.names)]
    return digest([*array_parts(*arrays), str(data.classes).encode()])


def scaling_digest(data: Dataset) -> str:
    """A digest of how samples are scaled."""
    return digest(array_parts(data.mean, data.std))


def model_digest(model: Model, shape: tuple[int, ...]) -> str:
    """A digest of what a model computes: its functions as JAX traces them, constants included.

    >>> from joulemesh.models import build
    >>> wide, narrow = (build("mlp", (8, 8, 1), 10, (width,)) for width in (32, 16))
    >>> model_digest(wide, (8, 8, 1)) == model_digest(narrow, (8, 8, 1))
    False
    """
    key = jax.random.key(0)
    batch = jax.ShapeDtypeStruct((2, *shape), np.float32)  # type: ignore[no-untyped-call]
    params = jax.eval_shape(model.init, key)
    traced = [jax.make_jaxpr(model.init)(key), jax.make_jaxpr(model.apply)(params, batch)]
    text = [_ADDRESS.sub("", str(program)).encode() for program in traced]
    constants = [part for program in traced for part in array_parts(*program.consts)]
    return digest([*text, *constants, repr((model.name, model.l2, model.batch_axis)).encode()])
