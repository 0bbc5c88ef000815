"""Dataclasses as JSON values, and back: the fields that a class has and no others, types strict.

What is written is what is read again, bit for bit; ``inf`` is a text, since JSON has none.
"""

from __future__ import annotations

__all__ = ["Malformed", "read_record", "record_of"]

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from joulemesh.printable import printable

Read = Callable[[Any, str], Any]
Made = TypeVar("Made")

_LONGEST_TEXT = 2000
_LARGEST_INT = 2**53
_INFINITE = {"inf": math.inf, "-inf": -math.inf}


class Malformed(ValueError):  # noqa: N818 - it is what the value is
    """A value does not have the type that its field has."""


def record_of(value: object, *, without: str = "") -> dict[str, Any]:
    """A dataclass as an object of JSON. One of several classes is told apart by ``kind``.

    Args:
        value: the dataclass.
        without: a field to leave out.

    >>> from joulemesh.deploy.messages import Flood, Leave
    >>> record_of(Flood(3, 1, 7, Leave(0, "empty battery")))
    {'origin': 3, 'incarnation': 1, 'sequence': 7,
     'body': {'kind': 'leave', 'view': 0, 'reason': 'empty battery'}}
    """
    of: Any = type(value)
    hints = _hints(of)
    return {
        name: _plain(getattr(value, name), hint) for name, hint in hints.items() if name != without
    }


def _plain(value: Any, hint: Any) -> Any:
    if is_dataclass(value):
        record = record_of(value)
        several = len(_classes(hint)) > 1
        return {"kind": type(value).__name__.lower(), **record} if several else record
    if isinstance(value, tuple | list):
        inner = _items(hint, len(value))
        return [_plain(one, of) for one, of in zip(value, inner, strict=True)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable(value)[:_LONGEST_TEXT]
    if hint is float:
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return int(value)


def read_record(of: type[Made], record: object, **given: Any) -> Made:
    """A dataclass from an object of JSON.

    Args:
        of: the class.
        record: anything that JSON can write.
        given: fields that are not in the record, already checked.

    Raises:
        Malformed: the record is not one of this class; the text says where.

    >>> from joulemesh.deploy.messages import Fetch
    >>> read_record(Fetch, {"view": 0, "iteration": 3, "gift": False})
    Fetch(view=0, iteration=3, gift=False)
    >>> read_record(Fetch, {"view": 0, "iteration": 3.0, "gift": False})
    Traceback (most recent call last):
    ...
    joulemesh.deploy.fields.Malformed: fetch.iteration is not a whole number
    """
    made: Any = of
    where = of.__name__.lower()
    hints = {name: hint for name, hint in _hints(made).items() if name not in given}
    if not isinstance(record, Mapping) or set(record) != set(hints):
        raise Malformed(f"{where} does not have the fields of its kind")
    values = {n: _reader(hint)(record[n], f"{where}.{n}") for n, hint in hints.items()}
    return of(**values, **given)


@cache
def _hints(of: Any) -> dict[str, Any]:
    known = get_type_hints(of)
    return {field.name: known[field.name] for field in fields(of)}


def _classes(hint: Any) -> list[type]:
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [one for one in choices if is_dataclass(one) and isinstance(one, type)]


def _items(hint: Any, length: int) -> tuple[Any, ...]:
    """The types of a tuple's items, also where there may be None in its place."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if get_origin(one) is tuple)
    inner = get_args(hint)
    return inner[:1] * length if inner[-1] is Ellipsis else inner


@cache
def _reader(hint: Any) -> Read:
    """What reads a value of a type, or refuses it."""
    if hint in (int, float, bool, str):
        return _SCALARS[hint]
    if get_origin(hint) is tuple:
        return _tuple_reader(hint)
    classes = _classes(hint)
    if len(classes) > 1:
        return _one_of({one.__name__.lower(): one for one in classes})
    if get_origin(hint) in (Union, UnionType):
        (some,) = (one for one in get_args(hint) if one is not type(None))
        read = _reader(some)
        return lambda value, where: None if value is None else read(value, where)
    if not classes:
        raise TypeError(f"no message can have a field of type {hint}")
    return lambda value, _: read_record(classes[0], value)


def _tuple_reader(hint: Any) -> Read:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise Malformed(f"{where} is not a list")
        inner = _items(hint, len(value))
        if len(inner) != len(value):
            raise Malformed(f"{where} has {len(value):,} items instead of {len(inner)}")
        return tuple(_reader(of)(one, where) for one, of in zip(value, inner, strict=True))

    return read


def _one_of(classes: Mapping[str, type]) -> Read:
    def read(value: Any, where: str) -> Any:
        kind = value.get("kind") if isinstance(value, Mapping) else None
        if not isinstance(kind, str) or kind not in classes:
            raise Malformed(f"{where} is of an unknown kind")
        return read_record(classes[kind], {n: one for n, one in value.items() if n != "kind"})

    return read


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or abs(value) > _LARGEST_INT:
        raise Malformed(f"{where} is not a whole number")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Malformed(f"{where} is not a number")
    return float(value)


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise Malformed(f"{where} is neither true nor false")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or printable(value) != value:
        raise Malformed(f"{where} is not a printable text of at most {_LONGEST_TEXT} characters")
    return value


_SCALARS: dict[Any, Read] = {int: _whole, float: _number, bool: _truth, str: _text}
