"""Named arrays in one safetensors file, with a digest of each in its header."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.files import parse_json, write_whole

_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_PIECE = 2**24

Arrays: TypeAlias = dict[str, NDArray[Any]]
Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and type of arrays, by name."""


def _bytes_of(leaf: NDArray[Any]) -> memoryview:
    return leaf.reshape(-1).view(np.uint8).data


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, whole or not at all; none that is contiguous is copied."""
    named = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header, at = {}, 0
    for name, leaf in named.items():
        header[name] = {
            "dtype": _TYPES[leaf.dtype.name],
            "shape": list(leaf.shape),
            "data_offsets": [at, at + leaf.nbytes],
        }
        at += leaf.nbytes
    digests = {name: hashlib.sha256(_bytes_of(leaf)).hexdigest() for name, leaf in named.items()}
    described = {"__metadata__": {"sha256": json.dumps(digests)}, **header}
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(draft: IO[bytes]) -> None:
        draft.write(len(text).to_bytes(8, "little") + text)
        for leaf in named.values():
            view = _bytes_of(leaf)
            for first in range(0, len(view), _PIECE):
                draft.write(view[first : first + _PIECE])

    write_whole(path, write)


def read_arrays(path: Path, like: Shapes, *, besides: str | None = None) -> Arrays:
    """Read arrays; they must be those of ``like``, with its shapes and types.

    Nothing is allocated before the header fits ``like``, and every array is verified.
    """
    with path.open("rb") as file:
        described, digests, start = _header(file)
        more = [name for name in described if besides is not None and name.startswith(besides)]
        if sorted(described) != sorted([*like, *more]):
            raise ValueError("its arrays are not those of this run")
        held = os.fstat(file.fileno()).st_size - start
        wanted = {
            name: like[name] if name in like else _claimed(described[name])
            for name in (*like, *more)
        }
        read = {}
        for name, (shape, dtype) in wanted.items():
            entry = described[name]
            first, stop = _offsets(entry, held)
            size = math.prod(shape) * dtype.itemsize
            claimed = entry.get("dtype"), entry.get("shape"), stop - first
            if claimed != (_TYPES[dtype.name], list(shape), size):
                raise ValueError(f"{name} has another shape or type than in this run")
            file.seek(start + first)
            array = np.empty(shape, dtype)
            if file.readinto(_bytes_of(array)) != size:
                raise ValueError(f"{name} is cut short")
            if hashlib.sha256(_bytes_of(array)).hexdigest() != digests.get(name):
                raise ValueError(f"{name} has changed since it was written")
            read[name] = array
    return read


def _claimed(entry: dict[str, Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type that a header claims; the size of the data decides whether to believe."""
    shape, kind = entry.get("shape"), entry.get("dtype")
    named = [name for name, code in _TYPES.items() if code == kind]
    if not named or not isinstance(shape, list) or not all(_is_size(size) for size in shape):
        raise ValueError("its header is damaged")
    return tuple(shape), np.dtype(named[0])


def _is_size(size: object) -> bool:
    return type(size) is int and size >= 0


def _header(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The header of a safetensors file: its arrays, their digests, and where the data begin."""
    size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= os.fstat(file.fileno()).st_size - 8:
        raise ValueError("its header is damaged")
    try:
        described = parse_json(file.read(size))
        digests = parse_json(described.pop("__metadata__")["sha256"])
        if not all(isinstance(entry, dict) for entry in (digests, *described.values())):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("its header is damaged") from None
    return described, digests, 8 + size


def _offsets(entry: dict[str, Any], held: int) -> tuple[int, int]:
    """Where the data of an array begin and stop, among those that the file holds."""
    offsets = entry.get("data_offsets")
    if not isinstance(offsets, list) or [type(one) for one in offsets] != [int, int]:
        raise ValueError("its header is damaged")
    first, stop = offsets
    if not 0 <= first <= stop <= held:
        raise ValueError(f"it is cut short, or its header is damaged: {held:,} bytes of data")
    return first, stop


def named_leaves(params: Any) -> Arrays:
    """Parameters as NumPy arrays, named by their path in the tree."""
    if "jax" not in sys.modules:  # parameters of PyTorch
        return {name: np.ascontiguousarray(params[name]) for name in sorted(params)}
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {
        ".".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
        or "params": np.ascontiguousarray(leaf)
        for path, leaf in leaves
    }
