"""Control messages for everybody, over the links that there are."""

from __future__ import annotations

from dataclasses import replace

from joulemesh.deploy.messages import Body, Flood, Join, Leave, Replan, Suspect, signed_text
from joulemesh.deploy.node.context import NodeContext

_REMEMBERED = 512  # floods of one epoch: older ones count as seen
_EPOCHS = 4  # of one origin

_Name = tuple[int, int, int]


class Floods:
    """Passes every flood on once, and again where it did not come through.

    Only what its origin has signed is taken or passed on.

    A flood may still be lost with a device that passes it on; what must be heard is said again by
    its origin, as a flood of its own.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._sequence = 0
        self._epochs: dict[int, list[int]] = {}  # of each origin, the latest last
        self._seen: dict[tuple[int, int], set[int]] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._due: dict[int, dict[_Name, tuple[float, Flood]]] = {}  # by neighbour
        self._forgers: set[tuple[int, int]] = set()  # (neighbour, origin) that were noted

    def say(self, body: Body) -> Flood:
        self._sequence += 1
        context = self._context
        flood = Flood(context.device, context.epoch, self._sequence, body)
        flood = replace(flood, signature=context.signer.sign(signed_text(flood)))
        self._remember(flood)
        self._pass_on(flood, except_to=context.device)
        return flood

    def receive(self, sender: int, flood: Flood) -> bool:
        """Take a flood and pass it on; False if it came before, or its origin did not sign it."""
        context = self._context
        if flood.origin == context.device or self._came(flood):
            return False
        if not context.signer.verify(flood.origin, signed_text(flood), flood.signature):
            if (sender, flood.origin) not in self._forgers:
                self._forgers.add((sender, flood.origin))
                context.note("forged", sender=sender, origin=flood.origin)
            return False
        self._remember(flood)
        self._pass_on(flood, except_to=sender)
        return True

    def _came(self, flood: Flood) -> bool:
        key = (flood.origin, flood.epoch)
        old = flood.sequence <= self._newest.get(key, 0) - _REMEMBERED
        return old or flood.sequence in self._seen.get(key, ())

    def _remember(self, flood: Flood) -> None:
        epochs = self._epochs.setdefault(flood.origin, [])
        if flood.epoch not in epochs:
            epochs.append(flood.epoch)
            for epoch in epochs[:-_EPOCHS]:
                epochs.remove(epoch)
                del self._seen[flood.origin, epoch], self._newest[flood.origin, epoch]
        key = (flood.origin, flood.epoch)
        seen = self._seen.setdefault(key, set())
        seen.add(flood.sequence)
        self._newest[key] = newest = max(self._newest.get(key, 0), flood.sequence)
        if len(seen) > 2 * _REMEMBERED:
            self._seen[key] = {one for one in seen if one > newest - _REMEMBERED}

    def _pass_on(self, flood: Flood, except_to: int) -> None:
        name = (flood.origin, flood.epoch, flood.sequence)
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
        due, self._due = self._due, {}
        for to, floods in due.items():
            for name, (since, flood) in floods.items():
                self._send(to, name, flood, since)


class Triggers:
    """What was said about the present view; all of it is over with the next one."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._joins: dict[int, tuple[float, Join]] = {}
        self.forget()

    def forget(self) -> None:
        self.suspected: dict[int, str] = {}
        self.hung: set[int] = set()  # of these, those whose training does not end
        self.leaving: dict[int, str] = {}
        self._short: dict[int, str] = {}
        self._turned_away: set[int] = set()

    def suspect(self, said: Suspect) -> bool:
        """A neighbour of a device does not hear it; True if this is news."""
        view = self._context.view
        if said.view != view.number or said.device not in view.members:
            return False
        if said.hung:
            self.hung.add(said.device)
        elif said.device == self._context.device:
            return False
        if said.device in self.suspected:
            return False
        self.suspected[said.device] = said.reason
        return True

    def leave(self, origin: int, said: Leave) -> None:
        if said.view == self._context.view.number and origin in self._context.view.members:
            self.leaving[origin] = said.reason

    def replan(self, origin: int, said: Replan) -> None:
        if said.view == self._context.view.number and origin in self._context.view.members:
            self._short[origin] = said.reason

    def join(self, origin: int, said: Join) -> None:
        self._joins[origin] = (self._context.now, said)

    def joining(self) -> dict[int, Join]:
        """Those that ask now, and would not have to go back behind what they have done.

        A member that asks has lost its folder.
        """
        context, view = self._context, self._context.view
        return {
            device: join
            for device, (heard, join) in self._joins.items()
            if context.may_join(device)
            and device not in self._turned_away
            and join.view == view.number
            and join.iteration <= context.state.commit.iteration
            and context.now - heard < 2.0 * context.settings.patience_s
        }

    def turn_away(self) -> bool:
        """Without whom there may be a plan: newcomers first, then those short of joules."""
        joining = self.joining()
        if joining:
            self._turned_away |= joining.keys()
            return True
        if self._short.keys() - self.leaving.keys():
            self.leaving |= self._short
            return True
        return False

    def going(self) -> set[int]:
        """Members that leave, and those that the roster has retired."""
        retired = set(self._context.roster.retired).intersection(self._context.view.members)
        return self.leaving.keys() | retired

    def any(self) -> bool:
        return bool(self.suspected or self.going() or self._short or self.joining())
