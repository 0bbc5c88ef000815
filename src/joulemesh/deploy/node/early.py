"""Messages of exchanges that come before this device has got there."""

from __future__ import annotations

__all__ = ["Early"]

from collections.abc import Callable

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.messages import Part
from joulemesh.deploy.node.exchange import Awaited

Key = tuple[int, int]
"""(view, iteration)"""

_AHEAD = 2  # exchanges of one sender: it cannot go on from the next one without this device


class Early:
    """Keeps them, within bounds that nobody can make it exceed.

    Of an exchange whose route is known, what the route has is kept; of one that is not known yet,
    as much of each sender as two whole models. What is dropped is sent again when it is missed.

    >>> import numpy as np
    >>> early = Early()
    >>> early.keep(3, Part(1, 8, 0, np.ones(2)), None, limit_bytes=16)
    ''
    >>> early.keep(3, Part(1, 8, 1, np.ones(2)), None, limit_bytes=16)
    'too much, too early'
    >>> early.take((1, 8))
    [(0, 3, array([1., 1.]))]
    """

    def __init__(self) -> None:
        self._kept: dict[Key, dict[tuple[int, int], Vector]] = {}

    def keep(self, sender: int, part: Part, awaited: Awaited | None, limit_bytes: int) -> str:
        """Keep a message; why it is not kept, if it is not."""
        key, name = (part.view, part.iteration), (part.step, sender)
        own = [k for k, kept in self._kept.items() if any(who == sender for _, who in kept)]
        if key not in own and len(own) >= _AHEAD:
            return "too far ahead"
        kept = self._kept.setdefault(key, {})
        if name in kept:
            return "came before"
        if awaited is not None:
            if name not in awaited:
                return "not on the route"
        elif part.payload.nbytes + self._bytes_of(sender) > limit_bytes:
            return "too much, too early"
        kept[name] = part.payload
        return ""

    def _bytes_of(self, sender: int) -> int:
        return sum(
            payload.nbytes
            for kept in self._kept.values()
            for (_, who), payload in kept.items()
            if who == sender
        )

    def take(self, key: Key) -> list[tuple[int, int, Vector]]:
        """(step, sender, payload) of an exchange, in order of steps and senders."""
        kept = self._kept.pop(key, {})
        return [(*name, kept[name]) for name in sorted(kept)]

    def prune(self, over: Callable[[Key], bool]) -> None:
        """Drop the messages of exchanges that will not take place."""
        self._kept = {key: kept for key, kept in self._kept.items() if not over(key)}
