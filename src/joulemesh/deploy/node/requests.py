"""What a device asks of its fleet: to do without another, to go itself, to come back, to plan anew.

Floods may be lost, so that what is not settled is said again.
"""

from __future__ import annotations

__all__ = ["Requests"]

from random import Random

from joulemesh.deploy.messages import Join, Leave, Replan, Suspect
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.council import Council
from joulemesh.deploy.node.floods import Floods
from joulemesh.deploy.node.learner import LearnerWatch
from joulemesh.deploy.node.triggers import Triggers

_LONGEST = 32.0  # patiences between two requests to be taken in, at most
_SETTLED = 3  # iterations after which a device that was taken in counts as settled


class Requests:
    """This device's own requests in the present view."""

    def __init__(
        self,
        context: NodeContext,
        floods: Floods,
        triggers: Triggers,
        council: Council,
        learner: LearnerWatch,
    ) -> None:
        self._context, self._floods, self._triggers = context, floods, triggers
        self._council, self._learner = council, learner
        self._suspects: dict[int, Suspect] = {}
        self.leaving = ""  # why this device goes
        self.for_good = False  # … and whether it may come back
        self.short = ""  # why it cannot follow the plan
        self._refused = 0  # how often it was put out or not taken in, without settling in between
        self._ask_at = 0.0
        done = context.state.commit.iteration
        self._inside = done + 1 if context.member else None  # the iteration since which it is in
        self._asked = False  # to be taken in, in the present view
        self._jitter = Random(f"{context.device} {context.epoch}")

    def suspect(self, device: int, reason: str, hung: bool = False) -> Suspect | None:
        """A device seems to have failed; None if that is said already."""
        if device in self._suspects:
            return None
        said = self._suspects[device] = Suspect(self._context.view.number, device, reason, hung)
        self._floods.say(said)
        return said

    def leave(self, reason: str, *, for_good: bool = True) -> None:
        """This device goes."""
        if not self.leaving:
            self.leaving, self.for_good = reason, for_good
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
        context = self._context
        if self.leaving:
            self._say_leaving()
        elif not context.member or context.lost:
            self._ask()
        elif self.short:
            self._say_short()
        for said in self._suspects.values():
            self._floods.say(said)

    def _ask(self) -> None:
        """Ask to be taken in, once the learner is free and it is time."""
        context, state = self._context, self._context.state
        if context.on_disk is not state or self._learner.busy or context.now < self._ask_at:
            return
        self._asked = True
        left_j, iteration = context.meter.left_j(), state.commit.iteration
        pace, epoch = self._learner.pace, context.epoch
        self._floods.say(Join(context.view.number, iteration, left_j, pace, epoch))

    def installed(self) -> None:
        """Another view: what was said is settled, unless it is said of this one too."""
        self._suspects.clear()
        self.short = ""
        if not self._context.member:
            self._wait()
        elif self._inside is None:
            self._inside = self._context.view.start
        self._asked = False
        if self.leaving:
            self._say_leaving()
        elif not self._context.member:
            self._context.save(self._context.state, self.say_again)

    def _wait(self) -> None:
        """Whoever is out asks at once, and after every time in vain waits twice as long."""
        context, done = self._context, self._context.state.commit.iteration
        if self._inside is not None and done >= self._inside + _SETTLED:
            self._refused = 0
        if self._inside is not None or self._asked:
            waits = 2.0 ** (self._refused - 1) if self._refused else 0.0
            wait_s = min(waits, _LONGEST) * context.settings.patience_s
            self._ask_at = context.now + wait_s * (0.75 + 0.5 * self._jitter.random())
            self._refused += 1
        self._inside = None
