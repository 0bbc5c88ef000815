"""Records as JSON and back, strictly: on the wire, in the store and under signatures alike.

A record has the fields of its class and no others, each of its type. Arrays stand in it as numbers;
whoever writes or reads it gives what numbers them, or what has the array of a number. Floats are
written as Python writes them, so that a signed text is the same with every version of pydantic.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Protocol, TypeVar

from numpy.typing import NDArray
from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic_core.core_schema import SerializationInfo, ValidationInfo

from joulemesh.base.errors import printable

_LONGEST_TEXT = 2000
_LARGEST_INT = 2**53


class Malformed(ValueError):  # noqa: N818 - it is what the value is
    pass


class Record:
    """What dataclasses that are written as records inherit."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")


class Arrays(Protocol):
    """Numbers the arrays of a record that is written, and has those of one that is read."""

    def number(self, array: NDArray[Any]) -> int: ...

    def array(self, number: int) -> NDArray[Any]: ...


def _number(array: NDArray[Any], info: SerializationInfo[Arrays]) -> int:
    assert info.context is not None
    return info.context.number(array)


def _array(number: Any, info: ValidationInfo[Arrays]) -> NDArray[Any]:
    if type(number) is not int:
        raise ValueError("is not the number of an array")
    assert info.context is not None
    return info.context.array(number)


def _short(text: str) -> str:
    return printable(text)[:_LONGEST_TEXT]


Array = Annotated[NDArray[Any], PlainValidator(_array), PlainSerializer(_number)]
Text = Annotated[str, PlainSerializer(_short)]
"""What an exception or a user may have worded: it travels printable and not too long."""

R = TypeVar("R")


@cache
def _adapter(of: Any) -> TypeAdapter[Any]:
    return TypeAdapter(of)


def write_record(value: object, *, without: str = "", arrays: Arrays | None = None) -> str:
    """A record as text, perhaps without a field.

    >>> from joulemesh.deploy.messages import Flood, Leave
    >>> write_record(Flood(3, 1, 7, Leave(0, "empty")), without="signature")
    '{"origin":3,"epoch":1,"sequence":7,"body":{"view":0,"reason":"empty","kind":"leave"}}'
    """
    of: Any = type(value)
    left_out = {without} if without else None
    plain = _adapter(of).dump_python(value, mode="json", exclude=left_out, context=arrays)
    return json.dumps(plain, separators=(",", ":"))


def read_record(of: type[R], text: str | bytes, arrays: Arrays | None = None) -> R:
    """A record from text that this program has written.

    >>> from joulemesh.deploy.messages import Fetch
    >>> read_record(Fetch, '{"view": 0, "iteration": 3, "gift": false}')
    Fetch(view=0, iteration=3, gift=False)
    >>> read_record(Fetch, '{"view": 0, "iteration": 3.5}')
    Traceback (most recent call last):
    ...
    joulemesh.deploy.codec.Malformed: fetch.iteration: input should be a valid integer...
    """
    kind: Any = of
    try:
        made: R = _adapter(kind).validate_json(text, context=arrays)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([of.__name__.lower(), *map(str, first["loc"])])
        words = f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise Malformed(printable(words)[:160]) from None
    return made


def read_claim(of: type[R], plain: Any, arrays: Arrays | None = None) -> R:
    """A record from parsed JSON that a stranger may have written.

    Raises:
        Malformed: it is not what this program would have written, field by field.
    """
    _require_plain(plain)
    text = json.dumps(plain)
    made = read_record(of, text, arrays)
    if json.loads(write_record(made, arrays=arrays)) != plain:
        raise Malformed(f"{of.__name__.lower()} lacks a field")
    return made


def _require_plain(value: Any) -> None:
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT or printable(value) != value:
            raise Malformed(f"a text is not printable, or longer than {_LONGEST_TEXT} characters")
    elif isinstance(value, float):
        if value != value:  # infinite ones are
            raise Malformed("a number is none")
    elif isinstance(value, int):
        if not -_LARGEST_INT <= value <= _LARGEST_INT:
            raise Malformed("a whole number is too large")
    elif isinstance(value, dict):
        for name, one in value.items():
            _require_plain(name)
            _require_plain(one)
    elif isinstance(value, list):
        for one in value:
            _require_plain(one)
