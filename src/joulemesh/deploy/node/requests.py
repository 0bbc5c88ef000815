"""What a device asks of its fleet: to do without another, to go itself, to come back, to plan anew.

Floods may be lost, so that what is not settled is said again.
"""

from __future__ import annotations

__all__ = ["Requests"]

from joulemesh.deploy.messages import Join, Leave, Replan, Suspect
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.council import Council
from joulemesh.deploy.node.floods import Floods
from joulemesh.deploy.node.triggers import Triggers


class Requests:
    """This device's own requests in the present view."""

    def __init__(
        self, context: NodeContext, floods: Floods, triggers: Triggers, council: Council
    ) -> None:
        self._context, self._floods, self._triggers, self._council = (
            context,
            floods,
            triggers,
            council,
        )
        self._suspects: dict[int, Suspect] = {}
        self.leaving = ""  # why this device goes
        self.short = ""  # why it cannot follow the plan

    def suspect(self, device: int, reason: str) -> Suspect | None:
        """A neighbour seems to have failed; None if that is said already."""
        if device in self._suspects:
            return None
        said = self._suspects[device] = Suspect(self._context.view.number, device, reason)
        self._floods.say(said)
        return said

    def leave(self, reason: str) -> None:
        """This device goes."""
        if not self.leaving:
            self.leaving = reason
            self._context.note("left", reason=reason)
            self._say_leaving()

    def _say_leaving(self) -> None:
        if self._context.member:
            said = Leave(self._context.view.number, self.leaving)
            self._floods.say(said)
            self._triggers.leave(self._context.device, said)
            self._council.consider()

    def plan_anew(self, reason: str) -> None:
        """It cannot follow the plan."""
        if not (self.leaving or self.short):
            self.short = reason
            self._context.note("short", reason=reason)
            self._say_short()

    def _say_short(self) -> None:
        said = Replan(self._context.view.number, self.short)
        self._floods.say(said)
        self._triggers.replan(self._context.device, said)
        self._council.consider()

    def say_again(self) -> None:
        """Whatever is not settled."""
        context, state = self._context, self._context.state
        if self.leaving:
            self._say_leaving()
        elif not context.member and context.on_disk is state:
            left_j, iteration = context.meter.left_j(), state.commit.iteration
            self._floods.say(Join(context.view.number, iteration, left_j))
        elif self.short:
            self._say_short()
        for said in self._suspects.values():
            self._floods.say(said)

    def installed(self) -> None:
        """Another view: what was said is settled, unless it is said of this one too."""
        self._suspects.clear()
        self.short = ""
        if self.leaving:
            self._say_leaving()
        elif not self._context.member:
            self._context.save(self._context.state, self.say_again)
