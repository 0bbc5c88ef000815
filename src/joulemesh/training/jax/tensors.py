"""A tree of arrays in one safetensors file, with a digest of every leaf in its header."""

from __future__ import annotations

__all__ = ["read_tree", "write_tree"]

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.files import write_whole
from joulemesh.files.bounded import open_bounded, parse_json
from joulemesh.files.limits import CHECKPOINT_HEADER

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


def _named(tree: Any) -> dict[str, NDArray[Any]]:
    """Leaves by their path in the tree, in order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def _bytes_of(leaf: NDArray[Any]) -> memoryview:
    flat: Any = leaf.reshape(-1).view(np.uint8)
    return memoryview(flat)


def write_tree(path: Path, tree: Any) -> None:
    """Write the leaves of a tree, whole or not at all; no leaf is copied.

    Args:
        path: of the file.
        tree: of NumPy arrays.

    Raises:
        ScenarioError: the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "state.safetensors")
    ...     write_tree(place, {"w": np.arange(3.0)})
    ...     read_tree(place, {"w": np.zeros(3)})["w"].tolist()
    [0.0, 1.0, 2.0]
    """
    named, header, at = _named(tree), {}, 0
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


def read_tree(path: Path, like: Any) -> Any:
    """Read the leaves of a tree; they must be those of ``like``, with its shapes and types.

    Nothing is allocated before the header fits ``like``, and every leaf is verified.

    Args:
        path: of the file.
        like: a tree of arrays, or of their shapes and types.

    Returns:
        A tree of NumPy arrays.

    Raises:
        ValueError: the file is damaged, or holds something else; the text says what.
        OSError: it cannot be read.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    with open_bounded(path, sys.maxsize) as file:
        described, digests, start = _header(file)
        names = [jax.tree_util.keystr(where) for where, _ in leaves]
        if sorted(described) != sorted(names):
            raise ValueError("its arrays are not those of this run")
        read = []
        for name, (_, wanted) in zip(names, leaves, strict=True):
            entry = described[name]
            first, stop = _offsets(entry, os.fstat(file.fileno()).st_size - start)
            dtype, shape = np.dtype(wanted.dtype), tuple(wanted.shape)
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            claimed = entry.get("dtype"), entry.get("shape"), stop - first
            if claimed != (_TYPES[dtype.name], list(shape), size):
                raise ValueError(f"{name} has another shape or type than in this run")
            file.seek(start + first)
            leaf = np.empty(shape, dtype)
            if file.readinto(_bytes_of(leaf)) != size:
                raise ValueError(f"{name} is cut short")
            if hashlib.sha256(_bytes_of(leaf)).hexdigest() != digests.get(name):
                raise ValueError(f"{name} has changed since it was written")
            read.append(leaf)
    return jax.tree.unflatten(structure, read)


def _header(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The header of a safetensors file: its arrays, their digests, and where the data begin."""
    size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= min(CHECKPOINT_HEADER.now, os.fstat(file.fileno()).st_size - 8):
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
    if not isinstance(offsets, list) or [type(place) for place in offsets] != [int, int]:
        raise ValueError("its header is damaged")
    first, stop = offsets
    if not 0 <= first <= stop <= held:
        raise ValueError(f"it is cut short, or its header is damaged: {held:,} bytes of data")
    return first, stop
