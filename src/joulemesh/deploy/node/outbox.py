"""Messages of exchanges on their way: sent until they are delivered, kept while they may be asked
for again."""

from __future__ import annotations

__all__ = ["Outbox"]

import math
from collections.abc import Callable
from dataclasses import dataclass

from joulemesh.deploy.messages import Absent, Part
from joulemesh.deploy.node.context import NodeContext

Key = tuple[int, int]
"""(view, iteration)"""


@dataclass(eq=False)
class _Sending:
    to: int
    part: Part
    since: float  # when it was first sent
    within_s: float
    paid: bool = False  # before: a plan that broadcasts pays once for all who receive it
    flying: bool = False
    delivered: float | None = None  # when


class Outbox:
    """What a device sends in its exchanges.

    A message is sent again until the receiver's process has it. Even then the receiver may be
    started again and lack it, so that messages are kept until the receiver has committed their
    iteration; it names what it waits for in its signs of life.

    Args:
        context: the node's.
        broke: called when the battery does not hold enough for a message.
    """

    def __init__(self, context: NodeContext, broke: Callable[[], None]) -> None:
        self._context, self._broke = context, broke
        self._sendings: dict[Key, dict[tuple[int, int], _Sending]] = {}
        self._exact: set[Key] = set()

    def put(self, to: int, part: Part, within_s: float) -> None:
        """Send a message of an exchange."""
        sending = _Sending(to, part, self._context.now, within_s)
        self._sendings.setdefault((part.view, part.iteration), {})[part.step, to] = sending
        self._send(sending)

    def remember(self) -> None:
        """Have what was sent before a restart, in case that it is asked for."""
        for to, part in self._context.state.sent:
            kept = self._sendings.setdefault((part.view, part.iteration), {})
            within_s = self._context.settings.patience_s
            kept[part.step, to] = _Sending(
                to, part, self._context.now, within_s, paid=True, delivered=-math.inf
            )

    def mixed(self) -> tuple[tuple[int, Part], ...]:
        """(receiver, message) of all that is kept, except of exact averages."""
        return tuple(
            (sending.to, sending.part)
            for key, sendings in self._sendings.items()
            if key not in self._exact
            for sending in sendings.values()
        )

    def receivers(self) -> set[int]:
        """The devices for which anything is kept."""
        return {sending.to for sendings in self._sendings.values() for sending in sendings.values()}

    def _send(self, sending: _Sending) -> None:
        step = None if sending.paid else sending.part.step
        if not self._context.pay(sending.to, sending.part, step):
            self._cannot(sending)
            return
        sending.paid = True
        sending.flying, sending.delivered = True, None

        def answered(came: bool) -> None:
            sending.flying = False
            if came:
                sending.delivered = self._context.now

        self._context.send(sending.to, sending.part, within_s=sending.within_s, answered=answered)

    def _cannot(self, sending: _Sending) -> None:
        """The battery does not hold enough: of an iteration that is done, the receiver is told."""
        part = sending.part
        if part.iteration > self._context.state.commit.iteration:
            self._broke()
            return
        self._sendings.get((part.view, part.iteration), {}).pop((part.step, sending.to), None)
        if (part.view, part.iteration) not in self._exact:
            self._context.send(sending.to, Absent(part.view, part.iteration))

    def tick(self) -> None:
        """Send again what did not come through."""
        for sendings in list(self._sendings.values()):
            for sending in list(sendings.values()):
                if not sending.flying and sending.delivered is None:
                    self._send(sending)

    def again(self, to: int, iteration: int, step: int) -> bool:
        """A receiver says that it waits for a step; False if nothing of it is kept.

        What was delivered lately may not have been taken in when it spoke.
        """
        found = False
        settled = self._context.now - self._context.settings.patience_s / 2.0
        for (_, number), sendings in list(self._sendings.items()):
            for sending in list(sendings.values()) if number == iteration else ():
                if sending.to == to and sending.part.step >= step:
                    found = True
                    if sending.delivered is not None and sending.delivered < settled:
                        self._send(sending)
        return found

    def stuck(self, patience_s: float) -> list[int]:
        """Receivers that have taken nothing for so long after a message's deadline."""
        return sorted(
            {
                sending.to
                for sendings in self._sendings.values()
                for sending in sendings.values()
                if sending.delivered is None
                and self._context.now - sending.since > sending.within_s + patience_s
            }
        )

    def patient(self) -> None:
        """Count patience from now: this device was away itself."""
        for sendings in self._sendings.values():
            for sending in sendings.values():
                sending.since = self._context.now

    def forget(self, over: Callable[[Key, int], bool]) -> None:
        """Drop the messages of exchanges that are over for their receivers."""
        for key in list(self._sendings):
            kept = {k: p for k, p in self._sendings[key].items() if not over(key, p.to)}
            if kept:
                self._sendings[key] = kept
            else:
                del self._sendings[key]

    def averaged(self, key: Key) -> None:
        """An exact average is committed: who lacks messages of it can fetch the result instead."""
        kept = {k: p for k, p in self._sendings.pop(key, {}).items() if p.delivered is None}
        if kept:
            self._sendings[key] = kept
        self._exact = {key, *(one for one in self._exact if one in self._sendings)}
