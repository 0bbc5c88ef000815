"""Kinds of values that name links and devices: topologies, lists of links, who leaves when."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario.fields import checked_number
from joulemesh.scenario.registered import NamesSchema

__all__ = ["Gains", "Leaves", "LinkList", "Topology"]

_MOST = 2**53  # beyond this, float64 skips integers


def _topology(value: Any) -> str | tuple[tuple[int, int], ...]:
    """A name, the path of a file, or the links themselves: [[0, 1], [1, 2]]."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be a name, a path, or a list of links [[0, 1], ...], not {value!r}")
    for link in value:
        ends = list(link) if isinstance(link, list | tuple) else []
        whole = all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
        if len(ends) != 2 or not whole or min(ends) < 0 or max(ends) >= 2**31 or len({*ends}) < 2:
            raise ValueError(f"a link joins two different devices: [0, 1], not {link!r}")
    return tuple((link[0], link[1]) for link in value)


def _links(value: Any) -> tuple[tuple[int, int], ...]:
    """Links themselves, each once, the lower end first."""
    if value in ([], ()):
        return ()
    if isinstance(value, str):
        raise ValueError(f"must be a list of links [[0, 1], ...], not {value!r}")
    listed = _topology(value)
    return tuple(sorted({(min(link), max(link)) for link in listed if isinstance(link, tuple)}))


def _leaves(value: Any) -> tuple[tuple[int, int], ...]:
    """Pairs of a device and the first iteration without it, each device once."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of [device, iteration], not {value!r}")
    for pair in value:
        both = list(pair) if isinstance(pair, list | tuple) else []
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in both)
        if len(both) != 2 or not whole or both[0] < 0 or both[1] < 1 or max(both) > _MOST:
            raise ValueError(
                f"must be [device, iteration from 1 on], such as [3, 41], not {pair!r}"
            )
    devices = [pair[0] for pair in value]
    again = next((device for device in devices if devices.count(device) > 1), None)
    if again is not None:
        raise ValueError(f"device {again} can leave only once")
    return tuple(sorted((pair[0], pair[1]) for pair in value))


def _gains(value: Any) -> str | tuple[float, ...]:
    """The path of a file, or a gain for each link of the topology, in its order."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be a path, or a list with one gain a link, not {value!r}")
    return tuple(checked_number(gain, 0.0, strict=True) for gain in value)


_LINK = {"type": "array", "items": {"type": "integer", "minimum": 0}}
Topology = Annotated[
    Any,
    BeforeValidator(_topology),
    NamesSchema(TOPOLOGIES.names, [{"type": "string"}, {"type": "array", "items": _LINK}]),
]
LinkList = Annotated[
    Any,
    BeforeValidator(_links),
    WithJsonSchema({"type": "array", "items": _LINK}),
]
Leaves = Annotated[
    Any,
    BeforeValidator(_leaves),
    WithJsonSchema({"type": "array", "items": _LINK}),
]
Gains = Annotated[
    Any,
    BeforeValidator(_gains),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]}),
]
