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

from joulemesh.base.errors import printable

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]
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
    {'origin': 3, 'epoch': 1, 'sequence': 7,
     'body': {'kind': 'leave', 'view': 0, 'reason': 'empty battery'}, 'signature': ''}
    """
    of: Any = type(value)
    return {name: write(getattr(value, name)) for name, write, _ in _plan(of) if name != without}


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
    plan, values, name = _plan(made), dict(given), ""
    if not isinstance(record, dict) or len(record) + len(given) != len(plan):
        raise Malformed(f"{of.__name__.lower()} does not have the fields of its kind")
    try:
        for name, _, read in plan:
            if name not in given:
                values[name] = read(record[name])
    except KeyError:
        raise Malformed(f"{of.__name__.lower()} has no {name}") from None
    except Malformed as error:
        raise Malformed(f"{of.__name__.lower()}.{name} {error}") from None
    return of(**values)


@cache
def _plan(of: Any) -> tuple[tuple[str, Write, Read], ...]:
    """How each field of a class is written and read."""
    known = get_type_hints(of)
    return tuple((field.name, *_ways(known[field.name])) for field in fields(of))


@cache
def _ways(hint: Any) -> tuple[Write, Read]:
    """How a value of a type is written, and how it is read or refused."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is tuple:
        return _tuple_ways(get_args(hint))
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    some = [one for one in choices if one is not type(None)]
    if len(some) < len(choices) and len(some) == 1:
        return _optional_ways(*_ways(some[0]))
    if not all(is_dataclass(one) for one in choices):
        return _no_way, _no_way  # a vector: it does not travel in a record
    if len(choices) > 1:
        return _choice_ways({one.__name__.lower(): one for one in choices})
    return record_of, lambda value: read_record(hint, value)


def _no_way(*_: Any) -> Any:
    raise TypeError("a field of this type cannot be written in a record")


def _optional_ways(write: Write, read: Read) -> tuple[Write, Read]:
    return (
        lambda value: None if value is None else write(value),
        lambda value: None if value is None else read(value),
    )


def _tuple_ways(inner: tuple[Any, ...]) -> tuple[Write, Read]:
    many = inner[-1] is Ellipsis
    ways = [_ways(one) for one in inner[:1] if many] or [_ways(one) for one in inner]

    def write(value: Any) -> Any:
        each = ways * len(value) if many else ways
        return [one(item) for item, (one, _) in zip(value, each, strict=True)]

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Malformed("is not a list")
        if not many and len(value) != len(ways):
            raise Malformed(f"has {len(value):,} items instead of {len(ways)}")
        each = ways * len(value) if many else ways
        return tuple([one(item) for item, (_, one) in zip(value, each, strict=True)])

    return write, read


def _choice_ways(classes: Mapping[str, type]) -> tuple[Write, Read]:
    def write(value: Any) -> Any:
        return {"kind": type(value).__name__.lower(), **record_of(value)}

    def read(value: Any) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in classes:
            raise Malformed("is of an unknown kind")
        return read_record(classes[kind], {n: one for n, one in value.items() if n != "kind"})

    return write, read


def _write_number(value: Any) -> Any:
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _write_text(value: str) -> str:
    return printable(value)[:_LONGEST_TEXT]


def _whole(value: Any) -> int:
    if type(value) is not int or not -_LARGEST_INT <= value <= _LARGEST_INT:
        raise Malformed("is not a whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Malformed("is not a number")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Malformed("is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or printable(value) != value:
        raise Malformed(f"is not a printable text of at most {_LONGEST_TEXT} characters")
    return value


_SCALARS: dict[Any, tuple[Write, Read]] = {
    int: (int, _whole),
    float: (_write_number, _number),
    bool: (bool, _truth),
    str: (_write_text, _text),
}
