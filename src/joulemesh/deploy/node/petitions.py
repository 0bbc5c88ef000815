"""What a device asks of its fleet: to do without another, to go itself, to come back, to plan anew.

Floods may be lost, so that what is not settled is said again.
"""

from __future__ import annotations

__all__ = ["Petitions"]

from joulemesh.deploy.messages import Join, Leave, Replan, Suspect
from joulemesh.deploy.node.council import Council
from joulemesh.deploy.node.desk import Desk
from joulemesh.deploy.node.floods import Floods
from joulemesh.deploy.node.grounds import Grounds


class Petitions:
    """This device's own requests in the present view."""

    def __init__(self, desk: Desk, floods: Floods, grounds: Grounds, council: Council) -> None:
        self._desk, self._floods, self._grounds, self._council = desk, floods, grounds, council
        self._suspects: dict[int, Suspect] = {}
        self.leaving = ""  # why this device goes
        self._short = ""  # why it cannot follow the plan

    def suspect(self, device: int, reason: str) -> Suspect | None:
        """A neighbour seems to have failed; None if that is said already."""
        if device in self._suspects:
            return None
        said = self._suspects[device] = Suspect(self._desk.view.number, device, reason)
        self._floods.say(said)
        return said

    def leave(self, reason: str) -> None:
        """This device goes."""
        if not self.leaving:
            self.leaving = reason
            self._desk.note("left", reason=reason)
            self._say_leaving()

    def _say_leaving(self) -> None:
        if self._desk.member:
            said = Leave(self._desk.view.number, self.leaving)
            self._floods.say(said)
            self._grounds.leave(self._desk.device, said)
            self._council.consider()

    def plan_anew(self, reason: str) -> None:
        """It cannot follow the plan."""
        if not (self.leaving or self._short):
            self._short = reason
            self._desk.note("short", reason=reason)
            self._say_short()

    def _say_short(self) -> None:
        said = Replan(self._desk.view.number, self._short)
        self._floods.say(said)
        self._grounds.replan(self._desk.device, said)
        self._council.consider()

    def say_again(self) -> None:
        """Whatever is not settled."""
        desk, state = self._desk, self._desk.state
        if self.leaving:
            self._say_leaving()
        elif not desk.member and desk.on_disk is state:
            left_j, iteration = desk.meter.left_j(), state.commit.iteration
            self._floods.say(Join(desk.view.number, state.incarnation, iteration, left_j))
        elif self._short:
            self._say_short()
        for said in self._suspects.values():
            self._floods.say(said)

    def installed(self) -> None:
        """Another view: what was said is settled, unless it is said of this one too."""
        self._suspects.clear()
        self._short = ""
        if self.leaving:
            self._say_leaving()
        elif not self._desk.member:
            self._desk.save(self._desk.state, self.say_again)
