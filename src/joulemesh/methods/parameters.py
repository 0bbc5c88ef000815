"""Parameters of methods: how their text is read, what they mean, and what holds without them."""

from __future__ import annotations

__all__ = ["AS_PLANNED", "Parameter", "choice", "entry", "number", "whole"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from joulemesh.citation import Citation
from joulemesh.registry import Registry

AS_PLANNED = "the adaptive plan's mean"
"""The number of rounds of a method that is given none (`Setting.rounds`)."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method.

    Attributes:
        read: makes the value of a text; ValueError for one that is out of range.
        what: what the text must be, in words.
        meaning: what it decides, in words.
        default: what holds if it is not given: a text that ``read`` takes, or words.
        words: all texts that may be given, if they can be listed.
        cites: publications that a value rests on, besides the method's own.
        example: a text that may be given, where they cannot be listed.
    """

    read: Callable[[str], Any]
    what: str
    meaning: str = ""
    default: str = ""
    words: tuple[str, ...] = ()
    cites: Callable[[Any], tuple[Citation, ...]] = lambda value: ()
    example: str = ""


def whole(least: int = 1, *, meaning: str = "", default: str = "") -> Parameter:
    """A whole number of at least ``least``.

    >>> whole(1, meaning="rounds in an iteration", default="3").read("3")
    3
    """

    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(text)
        return value

    return Parameter(read, f"a whole number of at least {least}", meaning, default)


def number(most: float = 1.0, *, meaning: str = "", default: str = "") -> Parameter:
    """A number above 0, up to ``most``.

    >>> number().read("0.1")
    0.1
    """

    def read(text: str) -> float:
        value = float(text)
        if not 0 < value <= most:
            raise ValueError(text)
        return value

    return Parameter(read, f"a number above 0, at most {most:g}", meaning, default)


def entry(registry: Registry[Any], *, meaning: str = "", default: str = "") -> Parameter:
    """The name of an entry of a registry, built in or the user's own.

    >>> from joulemesh.registries import POLICIES
    >>> entry(POLICIES).read("backfill")
    'backfill'
    """

    def read(text: str) -> str:
        if text not in registry:
            raise ValueError(text)
        return text

    words = registry.built_in
    return Parameter(read, f"one of {', '.join(words)}", meaning, default, words)


def choice(*words: str, meaning: str = "", default: str = "") -> Parameter:
    """One of some words.

    >>> choice("sent", "shared").read("shared")
    'shared'
    """

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Parameter(read, f"one of {', '.join(words)}", meaning, default, words)
