"""Shapes of arrays, read from the documentation and checked on real objects.

Docstrings say ``rounds: int64 [n, N]: …`` of an attribute, and so do comments above or behind a
field; ``float64 [N]: …`` of a property, and ``float64 [E] each`` of all arrays of a class. Sizes
with the same name must be equal within an object, or within the arguments and the result of a call.
While tests run, every dataclass of the package that states shapes is checked whenever an object of
it is made (`watch`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any

import numpy as np

KINDS = {
    **{name: name for name in ("int8", "int32", "int64", "uint8", "uint32", "float32", "float64")},
    **{"bool": "bool_", "str": "str_", "int": "integer", "integers": "integer"},
    **{"float": "floating", "floats": "floating"},
}
_WORD = "|".join(sorted((*KINDS, "Integers"), key=len, reverse=True))
_SHAPE = r"(?:scalar|\[[^\]\[]*\])"
_STATED = re.compile(
    rf"(?:(?P<kinds>(?:{_WORD})(?: or (?:{_WORD}))*) )?"
    rf"(?P<shapes>{_SHAPE}(?:(?:, or |, | or ){_SHAPE})*)(?P<after>$|[\s:;,.])"
)
_EACH = re.compile(rf"(?:(?P<kinds>{_WORD}) )?(?P<shapes>{_SHAPE}) each")
_EACH_BEFORE = re.compile(rf"each (?:(?P<kinds>{_WORD}) )?(?P<shapes>{_SHAPE})")
_TERM = re.compile(r"([+-]?)\s*([\w']+)")


class ShapeError(AssertionError):
    """An array does not have the shape or the type that the documentation states."""


@dataclass(frozen=True)
class Stated:
    """What the documentation says of an array.

    Attributes:
        kinds: NumPy's names of the types that it may have; empty for any.
        shapes: that it may have, each as the words between its brackets.
    """

    kinds: tuple[str, ...]
    shapes: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        shapes = " or ".join(f"[{', '.join(shape)}]" for shape in self.shapes)
        return f"{' or '.join(self.kinds)} {shapes}".strip()

    def bind(self, array: Any, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """The sizes known after the array was seen; None if it does not fit them."""
        types = [getattr(np, kind) for kind in self.kinds]
        if types and not any(np.issubdtype(array.dtype, kind) for kind in types):
            return None
        for shape in self.shapes:
            found = _bound(tuple(array.shape), shape, sizes)
            if found is not None:
                return found
        return None


def _bound(
    actual: tuple[int, ...], words: tuple[str, ...], sizes: Mapping[str, int]
) -> dict[str, int] | None:
    if words and words[-1] in ("...", "…"):
        words = words[:-1]
        actual = actual[: len(words)]
    if len(actual) != len(words):
        return None
    known = dict(sizes)
    for size, word in zip(actual, words, strict=True):
        if not _fits(size, word, known):
            return None
    return known


def _fits(size: int, word: str, known: dict[str, int]) -> bool:
    """Is a size the sum that its word states? One name that is not known yet becomes known."""
    terms = _TERM.findall(word.replace("−", "-"))
    unknown = [(sign, name) for sign, name in terms if not name.isdigit() and name not in known]
    total = sum(
        (-1 if sign == "-" else 1) * (int(name) if name.isdigit() else known[name])
        for sign, name in terms
        if name.isdigit() or name in known
    )
    if not unknown:
        return size == total
    if len(unknown) == 1:
        sign, name = unknown[0]
        known[name] = total - size if sign == "-" else size - total
        return known[name] >= 0
    return True


def read(text: str) -> Stated | None:
    """What a description states at its beginning; None if it states no shape.

    >>> print(read("int64 [n, N] or [1, N]: rounds"))
    int64 [n, N] or [1, N]
    """
    found = _STATED.match(text)
    return _stated(found) if found else None


def _stated(found: re.Match[str]) -> Stated:
    kinds = re.split(" or ", found["kinds"]) if found["kinds"] else []
    shapes = re.findall(_SHAPE, found["shapes"])
    return Stated(
        tuple(KINDS[kind.lower()] for kind in kinds),
        tuple(() if one in ("[]", "scalar") else tuple(one[1:-1].split(", ")) for one in shapes),
    )


def entries(doc: str | None, section: str) -> Iterator[tuple[str, str]]:
    """Names and descriptions under a heading (``Attributes``, ``Args``) of a docstring."""
    lines = inspect.cleandoc(doc or "").splitlines()
    inside = False
    for line in lines:
        if line == f"{section}:":
            inside = True
        elif inside and line and not line.startswith("    "):
            return
        elif inside and (entry := re.match(r"    (\*?\w+(?:, \w+)*): (.*)", line)):
            for name in entry[1].split(", "):
                yield name, entry[2]


def comments(cls: type) -> Iterator[tuple[str, str]]:
    """Names of a dataclass's fields with the comment above or behind each."""
    if not dataclasses.is_dataclass(cls):
        return
    try:
        lines = inspect.getsource(cls).splitlines()
    except (OSError, TypeError):  # made while a test runs
        return
    above: list[str] = []
    for line in lines:
        if (alone := re.match(r"    # (.*)", line)) is not None:
            above.append(alone[1])
            continue
        if (field := re.match(r"    (\w+): [^#]*(?:# (.*))?$", line)) is not None:
            yield field[1], field[2] or " ".join(above)
        above = []


_READ: dict[type, dict[str, Stated]] = {}


def stated_by(cls: type) -> dict[str, Stated]:
    """What a class states of its attributes and properties, those inherited too."""
    if cls not in _READ:
        _READ[cls] = _stated_by(cls)
    return _READ[cls]


def _stated_by(cls: type) -> dict[str, Stated]:
    found: dict[str, Stated] = {}
    head = inspect.cleandoc(cls.__doc__ or "").split("\n\nAttributes:")[0]
    if each := _EACH.search(head) or _EACH_BEFORE.search(head):
        found |= dict.fromkeys(inspect.get_annotations(cls).keys() - {"_"}, _stated(each))
    for name, text in entries(cls.__doc__, "Attributes"):
        if (one := read(text)) is not None:
            found[name] = one
        elif re.search(_SHAPE, text):  # of what the attribute holds
            found.pop(name, None)
    for name, text in comments(cls):
        if (one := read(text)) is not None:
            found[name] = one
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, property | cached_property):
                doc = inspect.cleandoc(member.__doc__ or "")
                if (one := read(doc)) is not None:
                    found[name] = one
    return found


def check(
    thing: Any, sizes: Mapping[str, int] | None = None, *, properties: bool = True
) -> dict[str, int]:
    """Compare an object's arrays with what its class states.

    Args:
        thing: the object.
        sizes: that are known, by name.
        properties: ask for its properties too, which may compute.

    Returns:
        All sizes that are known then.

    Raises:
        ShapeError: an array differs.
    """
    cls = type(thing)
    kept = {field.name for field in dataclasses.fields(cls)} if properties is False else None
    stated = [(n, one) for n, one in stated_by(cls).items() if kept is None or n in kept]
    known = dict(sizes or {})
    # Those with one shape first: they say which of several another has.
    for name, one in sorted(stated, key=lambda item: len(item[1].shapes) > 1):
        known = _compared(f"{cls.__name__}.{name}", getattr(thing, name), one, known)
    return known


def called(function: Callable[..., Any], *args: Any, sizes: Any = None, **kwargs: Any) -> Any:
    """Call a function, and compare its arguments and its result with what it states.

    Args:
        function: a function, or a method of an object whose class states shapes.
        args: its arguments; whole numbers are known as sizes, by the parameter's name.
        sizes: that are known beside those, by name.
        kwargs: its arguments.

    Returns:
        What the function gives; each of several arrays (a mapping or named tuple) was compared.
    """
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    known: dict[str, int] = dict(sizes or {})
    if dataclasses.is_dataclass(owner := getattr(function, "__self__", None)):
        known |= check(owner, properties=False)
    whole = {k: int(v) for k, v in given.arguments.items() if isinstance(v, int | np.integer)}
    known |= whole
    name = getattr(function, "__qualname__", repr(function))
    for argument, text in entries(inspect.getdoc(function), "Args"):
        if argument in given.arguments and (one := read(text)) is not None:
            value = given.arguments[argument]
            known = _compared(f"{name}({argument})", value, one, known)
    result = function(*args, **kwargs)
    one = result_of(function)
    if one is None:
        raise ShapeError(f"{name} does not state the shape of what it gives")
    for number, part in enumerate(_parts(result)):
        known = _compared(f"{name}()[{number}]", part, one, known)
    return result


def result_of(function: Callable[..., Any]) -> Stated | None:
    """What a function states of its result: under Returns, or first of all."""
    doc = inspect.getdoc(function) or ""
    _, _, returns = doc.partition("\nReturns:\n")
    if returns:
        line = " ".join(returns.partition("\n\n")[0].split())
        found = _STATED.search(line)
        return _stated(found) if found else None
    found = _STATED.search(doc.partition("\n")[0])
    return _stated(found) if found else None


def _parts(result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        return list(result.values())
    return list(result) if isinstance(result, tuple) else [result]


def _compared(name: str, value: Any, one: Stated, sizes: Mapping[str, int]) -> dict[str, int]:
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return dict(sizes)  # None, a number, a function: another way to say it
    found = one.bind(value, sizes)
    if found is None:
        words = {
            word for shape in one.shapes for term in shape for word in re.findall(r"\w+", term)
        }
        known = ", ".join(f"{k} = {v}" for k, v in sizes.items() if k in words)
        raise ShapeError(
            f"{name} is {value.dtype} {list(value.shape)}, not {one}" + f" ({known})" * bool(known)
        )
    return found


FEW = 10  # objects of a class are checked in a test; later ones are made alike
_MADE: Counter[type] = Counter()
_WATCHED: set[type] = set()
_SEEN: set[str] = set()


def watch() -> None:
    """Check the first objects of the package's dataclasses that state shapes, from now on."""
    _MADE.clear()
    for home in sys.modules.keys() - _SEEN:
        _SEEN.add(home)
        module = sys.modules[home]
        if home.partition(".")[0] == "joulemesh":
            for cls in list(vars(module).values()):
                if isinstance(cls, type) and cls.__module__ == home and cls not in _WATCHED:
                    _watch(cls)


def _watch(cls: type) -> None:
    _WATCHED.add(cls)
    own: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
    if "__init__" not in vars(cls) or not stated_by(cls).keys() & own.keys():
        return
    made = vars(cls)["__init__"]

    @wraps(made)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if type(self) is cls and _MADE[cls] < FEW:
            _MADE[cls] += 1
            check(self, properties=False)

    type.__setattr__(cls, "__init__", checked)
