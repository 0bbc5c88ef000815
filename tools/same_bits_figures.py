"""Figures of `tools.same_bits`: digests, and numbers that tell a lost bit from another result.

A figure is a line of text: ``=`` and the value if it is a single one; otherwise a digest, and where
the value holds floating-point numbers also the digest of all else in it (shape, whole numbers,
texts) and two sums rounded to 12 digits (of one or two numbers, the numbers). Two figures differ in
``"bits"`` if the sums agree to 12 digits, by ``"≤ 1e-9"`` of their size, or in ``"value"``.
"""

from __future__ import annotations

__all__ = ["KINDS", "Parts", "Values", "contrast", "digest", "figures", "plain"]

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Values = Mapping[str, Mapping[str, Any]]
"""What a case measures, by part and name."""

Parts = dict[str, dict[str, str]]
"""Its figures, by part and name."""

KINDS = ("bits", "≤ 1e-9", "value")

_ROUNDING = 2e-12  # of two numbers rounded to 12 digits each
_CLOSE = 1e-9

# Clocks and versions; texts of more than one word, which may be rewritten, and paths.
_ELSEWHERE = re.compile(
    "(wall|setup|whole)_s|device_steps_per_s|started|made|.*versions?|trained_by|command|folder|out"
)
_WORD = re.compile(r"[^\s/\\]{0,60}")


def plain(tree: Any, leave_out: re.Pattern[str] | None = None) -> Any:
    """What was read from JSON without what depends on machine and hour, and without prose.

    >>> plain({"wall_s": 3.2, "scheme": "tree", "notes": ["is slow today"], "n": [1, 2.0]})
    {'scheme': 'tree', 'notes': [], 'n': [1, 2.0]}
    """
    if isinstance(tree, Mapping):
        kept = {}
        for key, value in tree.items():
            if _ELSEWHERE.fullmatch(key) or (leave_out and leave_out.fullmatch(key)):
                continue
            if not _is_prose(value):
                kept[key] = plain(value, leave_out)
        return kept
    if isinstance(tree, list | tuple):
        return [plain(value, leave_out) for value in tree if not _is_prose(value)]
    return tree


def _is_prose(value: Any) -> bool:
    return isinstance(value, str) and not _WORD.fullmatch(value)


def figures(values: Values) -> Parts:
    """The figures of what a case measured: one for each array, number or column of a tree."""
    return {
        part: {
            path: _figure(leaf)
            for name, value in named.items()
            for path, leaf in _split(value, name)
        }
        for part, named in values.items()
    }


def _split(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Quantities of one kind, so that no sum hides a small one among large ones.

    >>> dict(_split([{"hz": 2e9, "j": [1.0]}, {"hz": 1e9}], "devices"))
    {'devices.hz': [2000000000.0, 1000000000.0], 'devices.j': [[1.0], None]}
    """
    if isinstance(value, Mapping):
        for key in value:
            yield from _split(value[key], f"{name}.{key}")
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        rows = [item for item in value if isinstance(item, Mapping)]
        for key in dict.fromkeys(key for row in rows for key in row):
            yield from _split([row.get(key) for row in rows], f"{name}.{key}")
    elif isinstance(value, list) and any(_has_tables(item) for item in value):
        yield f"{name}.#", [len(item) for item in value if isinstance(item, list)]
        yield from _split([row for item in value if isinstance(item, list) for row in item], name)
    elif value is not None:
        yield name, value


def _has_tables(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and any(_has_tables(item) for item in value)
    )


def _figure(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return f"={json.dumps(value)}"
    floats = list(_floats(value))
    if not floats:
        return digest(value)
    numbers = np.concatenate(floats)
    numbers = np.where(np.isfinite(numbers), numbers, 0.0)
    if numbers.size > 2:  # of magnitudes, and one in which order counts
        ramp = 1.0 + np.arange(numbers.size) / numbers.size
        numbers = np.array([math.fsum(np.abs(numbers)), math.fsum(ramp * numbers)])
    told = " ".join(f"{number:.12g}" for number in numbers)
    return f"{digest(value)} {digest(value, floats=False)[:8]} {told}"


def contrast(was: str, now: str) -> tuple[str, str]:
    """How two figures that are not the same differ: one of `KINDS`, and the numbers.

    >>> contrast("ab12 77 1.5 2.5", "ab13 77 1.5 2.5")
    ('bits', '1.5 2.5')
    >>> contrast("=1.5", "=1.500000001"), contrast("=3", "=4")
    (('≤ 1e-9', '1.5 → 1.500000001'), ('value', '3 → 4'))
    """
    (form, old), (other, new) = _taken_apart(was), _taken_apart(now)
    shown = " ".join(old) if old == new else f"{' '.join(old)} → {' '.join(new)}"
    if form != other or len(old) != len(new):
        return "value", shown
    before, after = (np.array(numbers, float) for numbers in (old, new))
    size = np.maximum(np.abs(before), np.abs(after)).max()
    apart = np.abs(before - after).max()
    if apart <= _ROUNDING * size:
        return "bits", shown
    return "≤ 1e-9" if apart <= _CLOSE * size else "value", shown


def _taken_apart(figure: str) -> tuple[str, list[str]]:
    """What must be the same for two figures to be close, and the numbers that are to be close."""
    if figure.startswith("="):
        value = json.loads(figure[1:])
        return ("float" if isinstance(value, float) else figure), [figure[1:]]
    exact, *numbers = figure.split(" ")
    return (numbers[0], numbers[1:]) if numbers else (exact, [])


def digest(value: Any, *, floats: bool = True) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of arrays, numbers, texts and their nestings.

    Args:
        value: what is digested.
        floats: the contents of floating-point numbers too, not only their number and shape.

    >>> digest([1.0, 2.0]) == digest([1.0, np.nextafter(2.0, 3.0)])
    False
    >>> digest({"a": 1, "b": None}) == digest({"b": None, "a": 1})
    True
    """
    content = hashlib.sha256()
    for piece in _pieces(value, floats):
        content.update(struct.pack("<q", len(piece)) + piece)
    return content.hexdigest()[:16]


def _pieces(value: Any, floats: bool) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        yield b"mapping %d" % len(value)
        for key in sorted(value):
            yield from (repr(key).encode(), *_pieces(value[key], floats))
    elif isinstance(value, list | tuple):
        yield b"sequence %d" % len(value)
        for item in value:
            yield from _pieces(item, floats)
    elif value is None or isinstance(value, bool | int | str):
        yield repr(value).encode()
    elif isinstance(value, float):
        yield b"float " + (struct.pack("<d", value) if floats else b"")
    else:
        array = np.asarray(value)
        if array.dtype == object:
            raise TypeError(f"{type(value).__name__} has no digest")
        yield f"{array.dtype.str} {array.shape}".encode()
        if floats or array.dtype.kind != "f":
            yield np.ascontiguousarray(array).tobytes()


def _floats(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """All floating-point numbers in a value, in the order of its digest."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _floats(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floats(item)
    elif isinstance(value, float):
        yield np.array([value])
    elif not (value is None or isinstance(value, bool | int | str)):
        array = np.asarray(value)
        if array.dtype.kind == "f" and array.size:
            yield array.astype(float).ravel()
