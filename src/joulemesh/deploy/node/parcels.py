"""Messages of exchanges on their way: sent until they are delivered, kept while they may be asked
for again."""

from __future__ import annotations

__all__ = ["Parcels"]

import math
from collections.abc import Callable
from dataclasses import dataclass

from joulemesh.deploy.messages import Part
from joulemesh.deploy.node.desk import Desk

Key = tuple[int, int]
"""(view, iteration)"""


@dataclass(eq=False)
class _Parcel:
    to: int
    part: Part
    since: float  # when it was first sent
    within_s: float
    flying: bool = False
    delivered: float | None = None  # when


class Parcels:
    """What a device sends in its exchanges.

    A message is sent again until the receiver's process has it. Even then the receiver may be
    started again and lack it, so that messages are kept until the receiver has committed their
    iteration; it names what it waits for in its signs of life.

    Args:
        desk: the node's.
        broke: called when the battery does not hold enough for a message.
    """

    def __init__(self, desk: Desk, broke: Callable[[], None]) -> None:
        self._desk, self._broke = desk, broke
        self._parcels: dict[Key, dict[tuple[int, int], _Parcel]] = {}
        self._exact: set[Key] = set()

    def put(self, to: int, part: Part, within_s: float) -> None:
        """Send a message of an exchange."""
        parcel = _Parcel(to, part, self._desk.now, within_s)
        self._parcels.setdefault((part.view, part.iteration), {})[part.step, to] = parcel
        self._send(parcel)

    def remember(self) -> None:
        """Have what was sent before a restart, in case that it is asked for."""
        for to, part in self._desk.state.sent:
            kept = self._parcels.setdefault((part.view, part.iteration), {})
            within_s = self._desk.settings.patience_s
            kept[part.step, to] = _Parcel(to, part, self._desk.now, within_s, delivered=-math.inf)

    def mixed(self) -> tuple[tuple[int, Part], ...]:
        """(receiver, message) of all that is kept, except of exact averages."""
        return tuple(
            (parcel.to, parcel.part)
            for key, parcels in self._parcels.items()
            if key not in self._exact
            for parcel in parcels.values()
        )

    def receivers(self) -> set[int]:
        """The devices for which anything is kept."""
        return {parcel.to for parcels in self._parcels.values() for parcel in parcels.values()}

    def _send(self, parcel: _Parcel) -> None:
        if not self._desk.pay(parcel.to, parcel.part):
            self._broke()
            return
        parcel.flying, parcel.delivered = True, None

        def answered(came: bool) -> None:
            parcel.flying = False
            if came:
                parcel.delivered = self._desk.now

        self._desk.send(parcel.to, parcel.part, within_s=parcel.within_s, answered=answered)

    def tick(self) -> None:
        """Send again what did not come through."""
        for parcels in list(self._parcels.values()):
            for parcel in list(parcels.values()):
                if not parcel.flying and parcel.delivered is None:
                    self._send(parcel)

    def again(self, to: int, iteration: int, step: int) -> bool:
        """A receiver says that it waits for a step; False if nothing of it is kept.

        What was delivered lately may not have been taken in when it spoke.
        """
        found = False
        settled = self._desk.now - self._desk.settings.patience_s / 2.0
        for (_, number), parcels in list(self._parcels.items()):
            for parcel in list(parcels.values()) if number == iteration else ():
                if parcel.to == to and parcel.part.step >= step:
                    found = True
                    if parcel.delivered is not None and parcel.delivered < settled:
                        self._send(parcel)
        return found

    def stuck(self, patience_s: float) -> list[int]:
        """Receivers that have taken nothing for so long after a message's deadline."""
        return sorted(
            {
                parcel.to
                for parcels in self._parcels.values()
                for parcel in parcels.values()
                if parcel.delivered is None
                and self._desk.now - parcel.since > parcel.within_s + patience_s
            }
        )

    def patient(self) -> None:
        """Count patience from now: this device was away itself."""
        for parcels in self._parcels.values():
            for parcel in parcels.values():
                parcel.since = self._desk.now

    def forget(self, over: Callable[[Key, int], bool]) -> None:
        """Drop the messages of exchanges that are over for their receivers."""
        for key in list(self._parcels):
            kept = {k: p for k, p in self._parcels[key].items() if not over(key, p.to)}
            if kept:
                self._parcels[key] = kept
            else:
                del self._parcels[key]

    def averaged(self, key: Key) -> None:
        """An exact average is committed: who lacks messages of it can fetch the result instead."""
        kept = {k: p for k, p in self._parcels.pop(key, {}).items() if p.delivered is None}
        if kept:
            self._parcels[key] = kept
        self._exact = {key, *(one for one in self._exact if one in self._parcels)}
