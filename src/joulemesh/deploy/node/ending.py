"""When a node ends: asked to stop, gone from its fleet, or finished with everybody."""

from __future__ import annotations

from collections import Counter
from random import Random

from joulemesh.deploy.effects import Durable, Meter
from joulemesh.deploy.messages import (
    OVER,
    Beat,
    Fetch,
    Given,
    Join,
    Leave,
    Message,
    Recall,
    Refused,
    Replan,
    Suspect,
)
from joulemesh.deploy.node.context import NodeContext, Watch
from joulemesh.deploy.node.council import Council
from joulemesh.deploy.node.floods import Floods, Triggers
from joulemesh.deploy.node.signs import Signs
from joulemesh.deploy.node.work import LearnerWatch, Work
from joulemesh.deploy.view import LATE, UNHELD

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


COMPLETE = "all iterations are done"
RETIRED = "the operator has retired it"
_DEADLOCK = 4.0  # times as long as a minority waits
_UNHELD = (
    "the devices that held the fleet's parameters have left, and the others lack them; the newest "
    "are in their folders"
)


def succeeded(ended: str) -> bool:
    """Does a device that ended for this reason hold the model that the fleet ended with?

    >>> succeeded(COMPLETE), succeeded("its battery does not pay"), succeeded("")
    (True, False, False)
    """
    return ended == COMPLETE or ended.startswith(LATE)


class Ending:
    """Lets a node go only when nobody needs it any more, as far as it can wait for that."""

    def __init__(
        self,
        context: NodeContext,
        watch: Watch,
        work: Work,
        signs: Signs,
        requests: Requests,
        triggers: Triggers,
    ) -> None:
        self._context, self._watch, self._work = context, watch, work
        self._signs, self._requests, self._triggers = signs, requests, triggers
        self._reason, self._stop_by, self._said_so = "", 0.0, False
        self._gone_since: float | None = None

    def stop(self, reason: str) -> None:
        """Stop at the next moment at which nothing is lost; when asked again, at once."""
        if self._reason:
            self._context.end(reason)
        self._reason, self._work.halting = reason, True
        self._stop_by = self._context.now + self._context.settings.patience_s
        self._work.advance()

    def check(self) -> None:
        if self._context.ended:
            return
        if self._context.on_disk.views[-1].digest == UNHELD:
            self._context.end(self._requests.leaving or _UNHELD, resumable=False)
        elif self._reason:
            self._maybe_stop()
        elif self._requests.leaving:
            self._maybe_gone()
        elif self._work.at_end and self._signs.all_done():
            self._context.end(COMPLETE, complete=True)

    def _maybe_stop(self) -> None:
        """Stop once the neighbours have what they need of this device, or time is up."""
        if self._work.halted and not self._said_so:
            self._said_so = True
            self._signs.to_all()
        waited_for = self._work.averaging.outbox.receivers() - set(self._watch.cut())
        if (self._work.halted and not waited_for) or self._context.now >= self._stop_by:
            self._context.end(self._reason)

    def _maybe_gone(self) -> None:
        """A device that leaves serves those that are behind, and then it goes."""
        context, reason = self._context, self._requests.leaving
        if context.member:
            if self._triggers.leaving.keys() >= set(context.view.members):
                context.end(reason, resumable=not self._requests.for_good)
            return
        if self._gone_since is None:
            self._gone_since = context.now
        overdue = context.now - self._gone_since > 2.0 * context.settings.patience_s
        if overdue or self._watch.begun(context.view):
            context.end(reason, resumable=not self._requests.for_good)

    def give_up(self, since: float | None) -> None:
        """A minority stops: it must not go on by itself."""
        context, view, long_s = self._context, self._context.view, self._context.settings.minority_s
        met = self._watch.met(long_s)
        reached = len((met | {context.device}) & set(view.members))
        needed = context.settings.needed(view)
        if since is not None and context.now - since > long_s and reached < needed:
            if self._work.at_end and self._signs.settled():
                context.end(COMPLETE, complete=True)
            context.end(
                f"only {reached} of {len(view.members)} devices of view {view.number} can be "
                f"reached, and {needed} have to agree to go on; everything is saved: "
                "start it again when the others are back"
            )
        elif since is not None and context.now - since > _DEADLOCK * long_s:
            context.end(
                f"the devices of view {view.number} have not agreed on another for "
                f"{context.now - since:.0f} s; everything is saved: give all the same version of "
                "Joulemesh and the same fleet folder, and start them again"
            )
        waited_s = long_s + context.settings.starting_s if context.member else long_s
        if not met and self._watch.listened(waited_s):
            context.end("no neighbour can be reached; start it again when the others are back")


class Served:
    """Answers neighbours after the end."""

    def __init__(self, device: int, state: Durable, meter: Meter, epoch: int) -> None:
        self._device, self._state, self._meter, self._epoch = device, state, meter, epoch
        self._counts: Counter[int] = Counter()
        self._recalled: set[tuple[int, int]] = set()
        self._accounts = {one.device: one for one in state.accounts}

    def answer(self, sender: int, message: Message) -> list[Message]:
        if isinstance(message, Beat):
            return [] if message.phase == OVER else self._heard(sender, message)
        commit = self._state.commit
        if isinstance(message, Fetch) and message.iteration == commit.iteration:
            given = Given(message.view, message.iteration, commit.vector, message.gift)
            size = int(commit.vector.nbytes)
            if self._meter.send_j(sender, size) <= self._meter.left_j():
                self._meter.send(sender, size)
                return [given]
        return []

    def _heard(self, sender: int, beat: Beat) -> list[Message]:
        answers: list[Message] = []
        if (sender, beat.epoch) not in self._recalled:  # it was started: what it had said before
            self._recalled.add((sender, beat.epoch))
            answers.append(Recall(self._accounts.get(sender), epoch=beat.epoch))
        views = self._state.views
        unknown = tuple(one for one in views if one.number > beat.view and one.proof is not None)
        if unknown:
            answers.append(Refused(f"view {beat.view} is over", unknown))
        self._counts[sender] += 1
        sign = Beat(
            self._epoch,
            views[-1].number,
            self._state.commit.iteration,
            OVER,
            finished=(self._device,),
            count=self._counts[sender],
            echo=(beat.epoch, beat.count),
            roster=self._state.roster.number,
        )
        return [*answers, sign]
