"""Control messages for everybody, over the links that there are."""

from __future__ import annotations

__all__ = ["Floods"]

from joulemesh.deploy.messages import Body, Flood
from joulemesh.deploy.node.context import NodeContext

_REMEMBERED = 512  # floods of one origin: older ones count as seen

_Name = tuple[int, int, int]


class Floods:
    """Passes every flood on once, and again where it did not come through.

    A flood may still be lost with a device that passes it on; what must be heard is said again by
    its origin, as a flood of its own.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._sequence = 0
        self._incarnations: dict[int, int] = {}
        self._seen: dict[tuple[int, int], set[int]] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._due: dict[int, dict[_Name, tuple[float, Flood]]] = {}  # by neighbour

    def say(self, body: Body) -> None:
        """Tell everybody."""
        self._sequence += 1
        context = self._context
        flood = Flood(context.device, context.state.incarnation, self._sequence, body)
        self._new(flood)
        self._pass_on(flood, except_to=context.device)

    def receive(self, sender: int, flood: Flood) -> bool:
        """Take a flood and pass it on; False if it came before."""
        if flood.origin == self._context.device or not self._new(flood):
            return False
        self._pass_on(flood, except_to=sender)
        return True

    def of_now(self, flood: Flood) -> bool:
        """Does it come from the present life of its origin?"""
        return flood.incarnation >= self._incarnations[flood.origin]

    def _new(self, flood: Flood) -> bool:
        if flood.incarnation > self._incarnations.get(flood.origin, 0):
            self._incarnations[flood.origin] = flood.incarnation
            for key in [key for key in self._seen if key[0] == flood.origin]:
                del self._seen[key], self._newest[key]
        key, sequence = (flood.origin, flood.incarnation), flood.sequence
        seen, newest = self._seen.setdefault(key, set()), self._newest.get(key, 0)
        if sequence in seen or sequence <= newest - _REMEMBERED:
            return False
        seen.add(sequence)
        self._newest[key] = newest = max(newest, sequence)
        if len(seen) > 2 * _REMEMBERED:
            self._seen[key] = {one for one in seen if one > newest - _REMEMBERED}
        return True

    def _pass_on(self, flood: Flood, except_to: int) -> None:
        name = (flood.origin, flood.incarnation, flood.sequence)
        for neighbour in self._context.neighbours:
            if neighbour not in (except_to, flood.origin):
                self._send(neighbour, name, flood)

    def _send(self, to: int, name: _Name, flood: Flood, since: float | None = None) -> None:
        began = self._context.now if since is None else since

        def answered(came: bool) -> None:
            if not came and self._context.now - began < self._context.settings.patience_s:
                self._due.setdefault(to, {})[name] = (began, flood)

        self._context.send(to, flood, answered=answered)

    def tick(self) -> None:
        """Send again what did not come through."""
        due, self._due = self._due, {}
        for to, floods in due.items():
            for name, (since, flood) in floods.items():
                self._send(to, name, flood, since)
