"""Messages of exchanges as they come: for now, for later, or not wanted."""

from __future__ import annotations

__all__ = ["Inbox"]

from collections import Counter

from joulemesh.aggregation.peer import Vector
from joulemesh.aggregation.route import Route
from joulemesh.deploy.messages import Part
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.early import Early, Key
from joulemesh.deploy.node.exchange import Awaited
from joulemesh.deploy.node.planbook import Planbook
from joulemesh.deploy.view import governing


class Inbox:
    """Keeps what comes early, and refuses, with a reason and a count, what is not wanted."""

    def __init__(self, context: NodeContext, plans: Planbook) -> None:
        self._context, self._plans = context, plans
        self._early = Early()
        self._awaited: tuple[Route, Awaited] | None = None
        self._refused: Counter[tuple[int, str]] = Counter()

    def awaited(self, route: Route) -> Awaited:
        """The messages that a route has for this device."""
        if self._awaited is None or self._awaited[0] is not route:
            self._awaited = route, Awaited(route, self._context.device)
        return self._awaited[1]

    def keep(self, sender: int, part: Part) -> None:
        """A message of an exchange that this device has not begun."""
        reason = self._too_late(part) or self._keep(sender, part)
        if reason:
            self.refuse(sender, reason)

    def _too_late(self, part: Part) -> str:
        state = self._context.state
        if part.iteration <= state.commit.iteration:
            return "of an iteration that is done"
        if part.view < governing(state.views, part.iteration).number:
            return "of a view that is over"
        return ""

    def _keep(self, sender: int, part: Part) -> str:
        known = part.view <= self._context.view.number
        plan = self._plans.get(part.view) if known else None
        awaited = None
        if plan is not None:
            route = plan.route(part.iteration) if part.iteration <= plan.last else None
            if route is None:
                return "of an iteration without an exchange"
            awaited = self.awaited(route)
        limit_bytes = 2 * int(self._context.state.commit.vector.nbytes)
        return self._early.keep(sender, part, awaited, limit_bytes)

    def take(self, key: Key) -> list[tuple[int, int, Vector]]:
        """(step, sender, payload) of an exchange that begins."""
        return self._early.take(key)

    def refuse(self, sender: int, reason: str) -> None:
        """Count what is not wanted; the journal has the 1st, 2nd, 4th, 8th, …"""
        self._refused[sender, reason] += 1
        count = self._refused[sender, reason]
        if count & (count - 1) == 0:
            self._context.note("refused", sender=sender, reason=reason, count=count)

    def forget(self) -> None:
        """Drop what has become too late."""
        state = self._context.state
        self._early.prune(
            lambda key: (
                key[1] <= state.commit.iteration or key[0] < governing(state.views, key[1]).number
            )
        )
