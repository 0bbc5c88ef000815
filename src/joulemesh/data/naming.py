"""Devices by their names, where their table gives them any: in refusals, notes and reasons."""

from __future__ import annotations

__all__ = ["called", "named", "named_refusals"]

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from joulemesh.errors import JoulemeshError

_DEVICE = re.compile(r"\bdevice (\d+)\b")
_LONGEST = 60


def _short(name: str) -> str:
    """A name that leaves a sentence on its line."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def called(device: int, names: Sequence[str]) -> str:
    """How a device is called in a sentence.

    >>> called(1, ()), called(1, ("north", "south"))
    ('device 1', 'device 1 (south)')
    """
    return f"device {device} ({_short(names[device])})" if names else f"device {device}"


def named(text: str, names: Sequence[str]) -> str:
    """A sentence with the name of each device behind its number.

    Most sentences come from rooms that know devices by their numbers only; names are a matter of
    who reads them.

    Args:
        text: the sentence.
        names: of the devices; the text stays as it is without any.

    >>> named("device 1 cannot pay; device 0 can", ("north", "south"))
    'device 1 (south) cannot pay; device 0 (north) can'
    >>> named("device 1 (south) cannot pay", ("north", "south"))
    'device 1 (south) cannot pay'
    """
    if not names:
        return text

    def with_name(found: re.Match[str]) -> str:
        device = int(found[1])
        if device >= len(names):
            return found[0]
        name = f" ({_short(names[device])})"
        return found[0] if text.startswith(name, found.end()) else found[0] + name

    return _DEVICE.sub(with_name, text)


@contextmanager
def named_refusals(names: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Let refusals that come from within name devices.

    Args:
        names: gives the names; asked only if there is a refusal.

    >>> from joulemesh.errors import ScenarioError
    >>> with named_refusals(lambda: ("north",)):
    ...     raise ScenarioError("device 0 holds no samples")
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: device 0 (north) holds no samples
    """
    try:
        yield
    except JoulemeshError as error:
        if error.args and isinstance(error.args[0], str) and _DEVICE.search(error.args[0]):
            try:
                known = names()
            except JoulemeshError:  # a table that cannot be read, or names that are no names
                known = ()
            error.args = (named(error.args[0], known), *error.args[1:])
        raise
