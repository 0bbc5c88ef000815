"""Labels as they are written, as classes 0..K-1 in sorted order."""

from __future__ import annotations

__all__ = [
    "Codes",
    "canonical",
    "check_classes",
    "classes_in",
    "has_fractions",
    "in_order",
    "number_classes",
    "text_labels",
]

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError

_MANY_CLASSES = 1000  # more pass only with two samples of each, otherwise they are not classes
_LONGEST_NAME = 200
_TEXT_BYTES = 200  # that a text takes beside its characters, with its number and its place

Ints = NDArray[np.int32]


class Codes:
    """Distinct texts of a column, numbered in the order of appearance.

    >>> codes = Codes()
    >>> codes.add(["b", "a", "b"], lambda row: row + 2).tolist(), codes.values, codes.lines
    ([0, 1, 0], ['b', 'a'], [2, 3])
    """

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self.nbytes = 0
        """About what the distinct texts take in memory."""
        self.lines: list[int] = []

    @property
    def values(self) -> list[str]:
        """The distinct texts."""
        return list(self._index)

    def add(self, texts: Sequence[str], line_of: Callable[[int], int]) -> Ints:
        """Number some more.

        Args:
            texts: the column's next cells.
            line_of: the line of the k-th of them, kept for those that are new.
        """
        index, known = self._index, len(self._index)
        codes = np.fromiter((index.setdefault(t, len(index)) for t in texts), np.int32, len(texts))
        if len(index) > known:
            new = np.flatnonzero(codes >= known)
            rows = new[np.unique(codes[new], return_index=True)[1]]
            self.lines += [line_of(int(row)) for row in rows]
            self.nbytes += sum(len(texts[row]) + _TEXT_BYTES for row in rows.tolist())
        return codes


def canonical(values: Sequence[str]) -> list[str]:
    """Labels or names without spaces around them; whole numbers, if all are, without a point.

    >>> canonical([" cat", "dog  two"]), canonical(["1.0", "02"]), canonical(["1.0", "x"])
    (['cat', 'dog two'], ['1', '2'], ['1.0', 'x'])
    """
    clean = [" ".join(value.split()) for value in values]
    numbers = [_number(value) for value in clean]
    whole = [str(int(n)) for n in numbers if n is not None and n.is_integer()]
    return whole if len(whole) == len(clean) else clean


def in_order(values: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Number names in the order in which they first appear.

    >>> in_order(["b", "a ", "a"])
    (array([0, 1, 1], dtype=int32), ('b', 'a'))
    """
    names = canonical(values)
    index_of = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return np.array([index_of[name] for name in names], np.int32), tuple(index_of)


def number_classes(values: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Number labels in sorted order: whole numbers by size, texts by their characters.

    Args:
        values: distinct labels, in any order; spaces around them do not count.

    Returns:
        The class of each, and the classes' names; no names where labels are 0..K-1 already.

    Raises:
        ScenarioError: numbers with fractions, or a text too long for a name.

    >>> number_classes(["dog", "cat"])
    (array([1, 0], dtype=int32), ('cat', 'dog'))
    >>> number_classes(["1", "0", "2.0"])
    (array([1, 0, 2], dtype=int32), ())
    >>> number_classes(["1", "-1"])[1]
    ('-1', '1')
    """
    names = canonical(values)
    longest = max(names, key=len, default="")
    if len(longest) > _LONGEST_NAME:
        raise ScenarioError(
            f"a label of {len(longest):,} characters ({longest[:20]!r}...) names no class: "
            "take another column for the labels"
        )
    numbers = [number for number in map(_number, names) if number is not None]
    fraction = next((number for number in numbers if not number.is_integer()), None)
    if len(numbers) == len(names) and fraction is not None:
        raise ScenarioError(
            f"labels are numbers with fractions ({fraction:g} and others, {len(names):,} different "
            "ones): classes must be whole numbers or text; to predict numbers, set "
            'training.loss = "mse"'
        )
    order = sorted(set(names), key=int if len(numbers) == len(names) else None)
    index_of = {name: k for k, name in enumerate(order)}
    plain = order == [str(k) for k in range(len(order))]
    classes = np.array([index_of[name] for name in names], np.int32)
    return classes, () if plain else tuple(order)


def has_fractions(values: Sequence[str]) -> bool:
    """Are labels numbers, and not all of them whole?

    >>> has_fractions(["1", "2.5"]), has_fractions(["1.0", "2"]), has_fractions(["a", "2.5"])
    (True, False, False)
    """
    numbers = [_number(value) for value in canonical(values)]
    known = [number for number in numbers if number is not None]
    return len(known) == len(numbers) and not all(number.is_integer() for number in known)


def _number(text: str) -> float | None:
    """The finite number that a text writes."""
    if "_" in text or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def check_classes(where: str, classes: int, samples: int) -> None:
    """Refuse labels that can hardly be classes, such as a column that numbers the rows."""
    if classes > max(_MANY_CLASSES, samples // 2):
        raise ScenarioError(
            f"{where}: {classes:,} different labels among {samples:,} samples are too many to be "
            "classes: take another column for the labels"
        )


def text_labels(y_train: NDArray[Any], y_test: NDArray[Any]) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Arrays of texts as classes: training labels, test labels, names.

    >>> text_labels(np.array(["b", "a"]), np.array(["b"]))
    (array([1, 0], dtype=int32), array([1], dtype=int32), ('a', 'b'))
    """
    known, codes = np.unique(y_train.astype(str), return_inverse=True)
    seen, test_codes = np.unique(y_test.astype(str), return_inverse=True)
    classes, names = number_classes(known.tolist())
    test = classes_in(canonical(seen.tolist()), canonical(known.tolist()), classes)
    if (test < 0).any():
        first = int((test[test_codes] < 0).argmax())
        raise ScenarioError(
            f"y_test[{first}] = {str(y_test[first])!r:.60} is not a label of the training samples: "
            "correct it, or move some of its samples to them"
        )
    return classes[codes], test[test_codes], names


def classes_in(values: Sequence[str], known: Sequence[str], classes: Ints) -> Ints:
    """The classes of values, given those of the known ones; -1 for a stranger.

    >>> classes_in(["b", "c"], ["a", "b"], np.array([0, 1], np.int32))
    array([ 1, -1], dtype=int32)
    """
    of = dict(zip(known, classes.tolist(), strict=True))
    return np.array([of.get(value, -1) for value in values], np.int32)
