"""What the parts of a node share: the time, its durable state, and the effects they ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from joulemesh.deploy.effects import (
    Durable,
    Effect,
    End,
    Meter,
    Note,
    Plan,
    Planned,
    Save,
    Send,
    SetTimer,
    ViewPlan,
)
from joulemesh.deploy.messages import Account, Beat, FleetRoster, Given, Message, Part, Signer
from joulemesh.deploy.view import FINISHED, UNHELD, Settings, View, governing

_CLOSE = 1e-9  # of a battery: sums of the same joules in another order are the same


class NodeContext:
    """Effects go out from here, and their answers come back to whoever asked."""

    def __init__(
        self,
        device: int,
        links: tuple[tuple[int, int], ...],
        state: Durable,
        meter: Meter,
        settings: Settings,
        signer: Signer,
        epoch: int,
        spares: tuple[int, ...] = (),
    ) -> None:
        self.device, self.links, self.meter, self.settings = device, links, meter, settings
        self.signer, self.epoch = signer, epoch
        self._spares = frozenset(spares)
        self.state = state  # as it will be once all that is asked for is saved
        self.on_disk = state  # what others may hear of
        self.now = 0.0
        self.ended = False
        self.sure = False  # are folder and what neighbours remember compared, as far as they are?
        self.accounts: Callable[[], tuple[Account, ...]] = lambda: state.accounts
        self._effects: list[Effect] = []
        self._token = 0
        self._sendings: dict[int, Callable[[bool], None]] = {}
        self._savings: list[tuple[int, Durable, Callable[[], None] | None]] = []
        self._unsaved_since: float | None = None
        self.neighbours: tuple[int, ...] = ()
        self.enrol()

    def enrol(self) -> None:
        """Take up the roster: a spare place that is not taken is nobody's neighbour."""
        linked = {a + b - self.device for a, b in self.links if self.device in (a, b)}
        absent = self._spares.difference(self.roster.added)
        self.neighbours = tuple(sorted(linked - absent))

    @property
    def roster(self) -> FleetRoster:
        return self.on_disk.roster

    def may_join(self, device: int) -> bool:
        taken = device not in self._spares or device in self.roster.added
        return taken and device not in self.roster.retired

    @property
    def view(self) -> View:
        return self.state.views[-1]

    @property
    def lost(self) -> bool:
        """Has this device lost its folder, and was not taken in since?"""
        return self.state.folder == "lost"

    @property
    def member(self) -> bool:
        return self.device in self.view.members

    def take(self) -> list[Effect]:
        """What is to be done, in order; each effect is given once."""
        effects, self._effects = self._effects, []
        return effects

    def emit(self, effect: Effect) -> None:
        if not self.ended:
            self._effects.append(effect)

    def note(self, kind: str, **figures: Any) -> None:
        self.emit(Note(kind, figures))

    def timer(self, name: str, after_s: float) -> None:
        self.emit(SetTimer(name, after_s))

    def end(self, reason: str, *, complete: bool = False, resumable: bool = True) -> None:
        """Stop; if it is for good, that is saved first."""
        if self.ended or self.state.ended:
            return
        if resumable and not complete:
            self._end(End(reason, complete, resumable))
        else:
            last = End(reason, complete, resumable=False)
            self.save(replace(self.state, ended=reason), lambda: self._end(last))

    def _end(self, last: End) -> None:
        self.emit(last)
        self.ended = True

    def refuse_to_go_on(self, reason: str) -> None:
        """Stop until the user has changed something; then it can be started again."""
        if not (self.ended or self.state.ended):
            self._end(End(reason, complete=False, resumable=False))

    # Messages ---------------------------------------------------------------------------------

    def send(
        self,
        to: int,
        message: Message,
        *,
        within_s: float | None = None,
        answered: Callable[[bool], None] | None = None,
    ) -> None:
        """Carry a message to a neighbour, and hear whether it has come."""
        self._token += 1
        if answered is not None:
            self._sendings[self._token] = answered
        if within_s is None:
            within_s = self.settings.patience_s / 2.0
        self.emit(Send(self._token, to, message, within_s))

    def answered(self, token: int, came: bool) -> None:
        """A message has come through, or has not in time."""
        answer = self._sendings.pop(token, None)
        if answer is not None:
            answer(came)

    # Joules -----------------------------------------------------------------------------------

    def affords(self, joules: float) -> bool:
        left, spent = self.meter.left_j(), self.meter.spent_j()
        return left >= joules - _CLOSE * (abs(left) + spent)

    def pay(self, to: int, message: Part | Given, step: int | None = None) -> bool:
        """Pay for a message with parameters; False if the battery does not hold enough."""
        size = int(message.payload.nbytes)
        if not self.affords(self.meter.send_j(to, size, step)):
            return False
        self.meter.send(to, size, step)
        return True

    # The disk ---------------------------------------------------------------------------------

    def save(self, state: Durable, then: Callable[[], None] | None = None) -> None:
        """Make a state durable, and go on when it is.

        Every state holds all that earlier ones held: once a later one is on disk, so are they.
        """
        self.state = replace(state, accounts=self.accounts(), saves=self.state.saves + 1)
        self._save(then)

    def _save(self, then: Callable[[], None] | None = None) -> None:
        self._token += 1
        self._savings.append((self._token, self.state, then))
        self.emit(Save(self._token, self.state))

    def saved(self, token: int) -> None:
        self._unsaved_since = None
        while self._savings and self._savings[0][0] <= token:
            _, self.on_disk, then = self._savings.pop(0)
            if then is not None:
                then()

    def not_saved(self, reason: str) -> None:
        """It is not; it is tried again with the next chores, until patience runs out."""
        if self._unsaved_since is None:
            self._unsaved_since = self.now
            self.note("unsaved", reason=reason)
        elif self.now - self._unsaved_since > 3.0 * self.settings.patience_s:
            self._end(End(f"the state cannot be saved: {reason}", complete=False))

    def save_again(self) -> None:
        if self._unsaved_since is not None:
            self._save()


_PATTERN = 1000  # iterations within which everything has come once


class Planbook:
    """Asks for the plan of each view once, and checks that it is the one that was agreed on."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._plans: dict[int, ViewPlan] = {}
        self._asked: set[int] = set()
        self._longest_s: dict[int, float] = {}
        self._checking: set[View] = set()
        self.checked: dict[View, ViewPlan | None] = {}  # of views that are proposed, undigested

    def get(self, number: int) -> ViewPlan | None:
        return self._plans.get(number)

    def of(self, iteration: int) -> ViewPlan | None:
        """The plan that an iteration follows; it is asked for if it is not there."""
        view = governing(self._context.state.views, iteration)
        plan = self._plans.get(view.number)
        checked = self.checked.get(replace(view, digest=""))
        if plan is None and checked is not None and checked.view == view:
            plan = self._plans[view.number] = checked
        ends = view.digest in (FINISHED, UNHELD)
        if plan is None and not ends and view.number not in self._asked:
            self._asked.add(view.number)
            self._context.emit(Plan(view))
        return plan

    def take(self, event: Planned) -> bool:
        """The plan of a view that is installed; False if the node cannot go on by it."""
        number, agreed = event.view.number, event.view.digest
        self._asked.discard(number)
        if event.plan is None:
            self._context.refuse_to_go_on(
                f"view {number} has no plan here, though others have one: {event.refusal}"
            )
            return False
        own = event.plan.view.digest
        if own != agreed:
            self._context.note("digest", view=number, own=own, agreed=agreed)
            self._context.refuse_to_go_on(
                f"the plan of view {number} has digest {own[:12]} here and {agreed[:12]} on the "
                "others; give all devices the same version of Joulemesh and the same fleet folder"
            )
            return False
        self._plans[number] = event.plan
        return True

    def agrees(self, view: View) -> bool | None:
        """Does this device make the same plan of a proposed view? None: it is being made."""
        undigested = replace(view, digest="", proof=None)
        if view.digest in (FINISHED, UNHELD):
            return True
        if undigested in self.checked:
            plan = self.checked[undigested]
            return plan is not None and view.digest == plan.view.digest
        self._make(undigested)
        return None

    def refuses(self, view: View) -> bool | None:
        """Is there really no plan for a view? None: that is being found out."""
        if view in self.checked:
            return self.checked[view] is None
        self._make(view)
        return None

    def _make(self, undigested: View) -> None:
        if undigested not in self._checking:
            self._checking.add(undigested)
            self._context.emit(Plan(undigested))

    def check(self, event: Planned) -> None:
        self._checking.discard(event.view)
        self.checked[event.view] = event.plan

    def last(self) -> int | None:
        view = self._context.view
        if view.digest == FINISHED:
            return view.start - 1
        plan = self._plans.get(view.number) or self.of(view.start)
        return None if plan is None else plan.last

    def done(self, iteration: int) -> bool:
        view = governing(self._context.state.views, iteration)
        plan = self._plans.get(view.number)
        if plan is None:
            return view.digest == FINISHED and iteration >= view.start
        return iteration > plan.last

    def aside(self, iteration: int) -> bool:
        """Has the newest plan no part for this device from an iteration on?

        It cannot pay, or is cut off. Such a device stays where it is, since what it has committed
        says how far the others are, and takes up the last average when there is one.
        """
        view = governing(self._context.state.views, iteration)
        plan = self._plans.get(view.number)
        if plan is None or iteration > plan.last or view is not self._context.view:
            return False
        return self._context.device not in plan.active(iteration)

    def iteration_s(self, iteration: int) -> float:
        """Planned seconds of an iteration on the slowest device; 0 if they are not known."""
        plan = self._plans.get(governing(self._context.state.views, iteration).number)
        known = plan is not None and 1 <= iteration <= plan.last
        return plan.price(iteration).iteration_s if plan is not None and known else 0.0

    def longest_s(self) -> float:
        """Planned seconds of the longest iteration of the known plans; infinite without one.

        Their patterns repeat, so that the first iterations of a long plan are enough.
        """
        for number, plan in self._plans.items():
            if number not in self._longest_s:
                first = range(plan.view.start, min(plan.last, plan.view.start + _PATTERN) + 1)
                longest_s = max((plan.price(t).iteration_s for t in first), default=0.0)
                self._longest_s[number] = longest_s
        return max((self._longest_s[number] for number in self._plans), default=math.inf)

    def forget(self, iteration: int) -> None:
        """Drop the plans of views that govern nothing from an iteration on."""
        oldest = governing(self._context.state.views, iteration).number
        self._plans = {number: plan for number, plan in self._plans.items() if number >= oldest}
        number = self._context.view.number
        self.checked = {view: plan for view, plan in self.checked.items() if view.number >= number}


class Watch:
    """Remembers when each neighbour was heard, and what it said that it was doing."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._begun = 0.0
        self._heard: dict[int, float] = {}
        self._met: dict[int, float] = {}  # heard of, from whomever
        self._training: dict[int, tuple[tuple[int, int], float]] = {}
        self.beats: dict[int, Beat] = {}

    def begin(self) -> None:
        self._begun = self._context.now

    def hear(self, sender: int) -> None:
        self._heard[sender] = self._met[sender] = self._context.now

    def meet(self, device: int) -> None:
        """A device has said something to everybody."""
        self._met[device] = self._context.now

    def known(self) -> set[int]:
        """The neighbours that have been heard since the start, and are not silent now."""
        return {one for one in self._heard if not self.silent(one)}

    def met(self, within_s: float) -> set[int]:
        """The devices of which anything was heard lately."""
        return {one for one, at in self._met.items() if self._context.now - at < within_s}

    def listened(self, seconds: float) -> bool:
        return self._context.now - self._begun > seconds

    def begun(self, view: View) -> bool:
        """Have all neighbours that are members of a view all that they need to begin it?"""
        said = {one: self.beats.get(one) for one in self._context.neighbours if one in view.members}
        return all(
            beat is not None and beat.view >= view.number and beat.iteration >= view.start - 1
            for beat in said.values()
        )

    def beat(self, sender: int, beat: Beat) -> None:
        self.hear(sender)
        self.beats[sender] = beat
        if beat.phase != "training":
            self._training.pop(sender, None)
        elif self._training.get(sender, (None, 0.0))[0] != (beat.epoch, beat.iteration):
            self._training[sender] = (beat.epoch, beat.iteration), self._context.now

    def patient(self, device: int | None = None) -> None:
        """Count patience from now, with one neighbour or all: this device was away itself."""
        now = self._context.now
        for neighbour in self._heard if device is None else (device,):
            if neighbour in self._context.neighbours:
                self._heard[neighbour] = now
        self._training = {one: (what, now) for one, (what, _) in self._training.items()}
        self._begun = now if device is None else self._begun

    def linked(self) -> list[int]:
        """The neighbours with which the view exchanges."""
        view, device = self._context.view, self._context.device
        return [
            other
            for other in self._context.neighbours
            if other in view.members and (min(device, other), max(device, other)) not in view.cut
        ]

    def silent(self, neighbour: int) -> bool:
        settings, heard = self._context.settings, self._heard.get(neighbour)
        if heard is None:
            return self._context.now - self._begun > settings.starting_s
        return self._context.now - heard > settings.patience_s

    def cut(self) -> tuple[int, ...]:
        return tuple(one for one in self._context.neighbours if self.silent(one))

    def complete(self) -> bool:
        """Has every linked neighbour been heard, or had its time to start?"""
        return all(one in self._heard or self.silent(one) for one in self.linked())

    def alone(self) -> bool:
        """Has no neighbour been heard for a long time?"""
        last = max(
            (self._heard.get(one, self._begun) for one in self._context.neighbours), default=0
        )
        return self._context.now - last > 2.0 * self._context.settings.patience_s

    def suspects(self, allowed_s: Callable[[int, int], float]) -> Iterator[tuple[int, str, bool]]:
        """Linked neighbours that seem to have failed: who, why, and whether its training hangs.

        A device whose training hangs says so itself; this is for one that cannot.
        """
        settings, now = self._context.settings, self._context.now
        for one in self.linked():
            if self.silent(one):
                yield one, f"not heard for {settings.patience_s:g} s", False
            elif one in self._training:
                (_, iteration), since = self._training[one]
                limit_s = allowed_s(one, iteration + 1) + settings.patience_s
                if now - since > limit_s:
                    yield one, f"training iteration {iteration + 1} for {limit_s:.0f} s", True
