"""One device of a fleet: a state machine without any network, clock or disk.

`Node.handle` takes what happened and gives what is to be done. The rules are in the parts that it
puts together: `work` (train, exchange, commit), `council` (agreement on views), `watch` (who is
alive), `floods` (telling everybody).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from joulemesh.deploy.effects import (
    Begin,
    Delivered,
    Durable,
    Effect,
    End,
    Event,
    Meter,
    Planned,
    Received,
    Saved,
    SaveFailed,
    StopAsked,
    Tick,
    Train,
    Trained,
    TrainFailed,
    Undelivered,
)
from joulemesh.deploy.messages import (
    OVER,
    Absent,
    Accept,
    Accepted,
    Beat,
    Double,
    Fetch,
    FleetRoster,
    Flood,
    Given,
    Join,
    Leave,
    NoPlan,
    Part,
    Prepare,
    Promise,
    Recall,
    Refused,
    Replan,
    Signer,
    Suspect,
    signed_text,
)
from joulemesh.deploy.node.context import NodeContext, Watch
from joulemesh.deploy.node.council import Council, Hooks
from joulemesh.deploy.node.ending import COMPLETE, RETIRED, Ending, Requests
from joulemesh.deploy.node.floods import Floods, Triggers
from joulemesh.deploy.node.signs import Lives, Signs
from joulemesh.deploy.node.work import Work
from joulemesh.deploy.view import Settings, View

_ROUNDING = 1e-9  # of the plan's clock: sums of the same seconds in another order are the same
_VIEWS_WITHOUT = 3  # in which nobody gives a device what it lacks: then it leaves


class Node:
    """What one device does, event by event."""

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
        self._context = context = NodeContext(
            device, links, state, meter, settings, signer, epoch, spares
        )
        self._watch, self._floods, self._lives = Watch(context), Floods(context), Lives(context)
        context.accounts = self._lives.accounts
        self._triggers = Triggers(context)
        self._work = Work(context, self._watch, self._cannot_pay, self._will_be_short)
        hooks = Hooks(
            self._standing, self._work.advance, self._installed, self._holds, self._may_vote
        )
        self._council = Council(context, self._floods, self._triggers, self._work.plans, hooks)
        self._requests = Requests(
            context, self._floods, self._triggers, self._council, self._work.learner
        )
        self._signs = Signs(context, self._watch, self._work, self._lives)
        self._ending = Ending(
            context, self._watch, self._work, self._signs, self._requests, self._triggers
        )
        self._ticks = 0
        self._doubles: set[int] = set()  # that were noted
        self._forgers: set[int] = set()  # neighbours that brought a roster which nobody signed
        self._last_event = 0.0
        self._unpaid: set[int] = set()  # iterations for which another plan was asked
        self._broke = False  # though the plan says that it can pay, it cannot
        self._behind = False  # it cannot finish an iteration of an older view

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event; what is to be done, in order."""
        context = self._context
        if context.ended:
            return []
        context.now = now
        if now - self._last_event > context.settings.patience_s / 2.0:
            self._thaw(now - self._last_event)
        self._last_event = now
        self._dispatch(event)
        effects = context.take()
        if any(isinstance(effect, Train) for effect in effects):
            self._signs.soon()  # neighbours remember what is spent
            effects += context.take()
        return effects

    def _dispatch(self, event: Event) -> None:
        match event:
            case Received():
                self._received(event)
            case Delivered():
                self._context.answered(event.token, True)
            case Undelivered():
                self._context.answered(event.token, False)
            case Saved():
                self._context.saved(event.token)
            case SaveFailed():
                self._context.not_saved(event.reason)
            case Tick():
                self._tick(event.name)
            case Trained():
                self._work.trained(event)
            case TrainFailed():
                self._work.learner.failed()
                self._leave(
                    f"training failed in iteration {event.iteration}: {event.reason}",
                    for_good=False,
                )
            case Planned():
                if not self._council.planned(event):
                    self._work.planned(event)
            case StopAsked():
                self._ending.stop(event.reason)
            case Begin():
                self._begin()
        self._ending.check()

    # Beginning and ending ---------------------------------------------------------------------

    def _begin(self) -> None:
        context = self._context
        if context.state.ended:
            context.emit(End(context.state.ended, context.state.ended == COMPLETE, resumable=False))
            context.ended = True
            return
        state, epoch = context.state, context.epoch
        state = replace(state, incarnation=state.incarnation + 1, epoch=epoch)
        if state.folder == "copied":
            context.note("copied", iteration=state.commit.iteration)
        context.save(state, self._begun)
        context.timer("tick", context.settings.tick_s)

    def _begun(self) -> None:
        self._watch.begin()
        self._work.begin()
        self._signs.to_all()
        self._retire()
        self._look_around()

    def _look_around(self) -> None:
        """Begin to work as soon as all neighbours are there, and have said what they remember."""
        told = self._lives.recalled
        self._context.sure |= bool(told) and (self._watch.known() <= told or self._waited())
        near = set(self._context.neighbours) - set(self._context.roster.retired)
        if self._context.state.folder == "copied" and near <= told:  # none knows of a newer one
            self._context.save(replace(self._context.state, folder="whole"))
        if self._work.ready or self._requests.leaving or not self._acquainted():
            return
        self._work.ready = True
        if self._context.state.folder == "new":  # and nobody knows of an older one
            self._context.save(replace(self._context.state, folder="whole"))
        self._work.advance()

    def _acquainted(self) -> bool:
        """Has every linked neighbour answered, or had its time to start?

        A device that nobody answers is not where its neighbours look for it: perhaps it is the
        second with its name. It keeps still.
        """
        told, linked = self._lives.recalled, set(self._watch.linked())
        silent = {one for one in linked if self._watch.silent(one)}
        near = told - silent >= linked if self._starts_together else told | silent >= linked
        known = bool(told) or not self._context.neighbours
        return known and (near or self._waited()) and self._watch.complete()

    def _waited(self) -> bool:
        """Have neighbours had their time? One that answers but does not recall must not stop it."""
        return self._watch.listened(self._context.settings.starting_s)

    @property
    def _starts_together(self) -> bool:
        """Is this device waiting for all others, which one failure has stopped, to be back?

        They come back one by one. Until then silence is no failure, and a suspicion may be of a run
        that has ended: whoever stopped again for it would be the next that is suspected.
        """
        begun = self._work.ready or self._requests.leaving
        return self._context.settings.on_failure == "stop" and not begun and not self._waited()

    def _may_vote(self) -> bool:
        """Does this device know what it has promised and accepted before?

        If it has lost its folder, it does not vote for the number that follows its view, nor for
        any other until a view has taken it in as it is now. In a view of two every majority holds
        the other one: what that one remembers of its own votes is enough. A copy of a folder may be
        older than a vote that only some neighbours know of: all of them have to be asked.
        """
        context = self._context
        if not context.lost:
            return context.sure and context.on_disk.folder == "whole"
        members = set(context.view.members) - {context.device}
        return len(members) == 1 and members <= self._lives.vouching

    def _use_healed_links(self) -> None:
        """A link that a view has cut, and that carries messages again, is planned with again."""
        if self._context.member and self._work.ready and not self._work.finished:
            for neighbour in self._lives.healed():
                self._requests.plan_anew(f"its link to device {neighbour} works again")

    def _thaw(self, seconds: float) -> None:
        """This device was stopped for a while: others may not have been."""
        self._work.learner.slept(seconds)
        self._watch.patient()
        self._work.averaging.outbox.patient()
        self._work.supplies.patient()
        if self._council.since is not None:
            self._council.since = self._context.now

    # Messages ---------------------------------------------------------------------------------

    def _received(self, event: Received) -> None:
        sender, message = event.sender, event.message
        if isinstance(message, FleetRoster):  # the authority has signed it, whoever brings it
            self._enrol(sender, message)
        if sender not in self._context.neighbours:
            return
        if not isinstance(message, Beat):
            self._watch.hear(sender)
        match message:
            case Part() | Given() if not np.isfinite(message.payload).all():
                self._not_finite(sender, message)
            case Part():
                self._work.part(sender, message)
            case Beat():
                self._heard(sender, message)
            case Flood():
                if self._floods.receive(sender, message):
                    self._flooded(message)
            case Fetch():
                self._work.supplies.asked(sender, message)
            case Given():
                self._work.supplies.given(sender, message)
            case Absent():
                self._work.absent(sender, message)
            case Refused():
                self._council.learn(message.views, sender)
            case Recall():
                self._recalled(sender, message)

    def _enrol(self, sender: int, said: FleetRoster) -> None:
        """Take a newer roster that the authority has signed, and pass it on."""
        context = self._context
        if said.number <= context.state.roster.number:
            return
        if context.signer.authorised(signed_text(said), said.signature):
            context.save(replace(context.state, roster=said), lambda: self._enrolled(said))
        elif sender not in self._forgers:
            self._forgers.add(sender)
            context.note("forged", sender=sender, roster=said.number)

    def _enrolled(self, roster: FleetRoster) -> None:
        context = self._context
        context.note(
            "roster",
            number=roster.number,
            added=list(roster.added),
            retired=list(roster.retired),
        )
        context.enrol()
        for neighbour in context.neighbours:
            context.send(neighbour, roster)
        self._retire()
        self._council.consider()

    def _retire(self) -> None:
        if self._context.device in self._context.roster.retired:
            self._leave(RETIRED)

    def _not_finite(self, sender: int, message: Part | Given) -> None:
        """Nothing is averaged with such numbers: the fleet does without whoever sends them."""
        reason = f"sent parameters of iteration {message.iteration} that are not finite"
        said = self._requests.suspect(sender, reason, hung=True)
        if said is not None:
            self._context.note("not-finite", sender=sender, iteration=message.iteration)
            self._suspect(said)

    def _heard(self, sender: int, beat: Beat) -> None:
        context = self._context
        if beat.roster < context.roster.number:
            context.send(sender, context.roster)
        if not self._lives.current(sender, beat):
            if not self._lives.knows(sender, beat.epoch):
                self._signs.to(sender)  # whoever it is, it shows by its answer
        else:
            self._lives.recall_to(sender)
            self._watch.beat(sender, beat)
            if beat.view < context.view.number:
                views = self._council.since_view(beat.view)
                context.send(sender, Refused(f"view {beat.view} is over", views))
            elif beat.view > context.view.number:
                self._signs.to(sender)  # it will answer with the views that are missing here
            self._signs.heard(beat)
            self._work.beat(sender, beat)
            if beat.phase == OVER:
                self._work.late(sender, beat)
        self._name_doubles()
        self._look_around()

    def _recalled(self, sender: int, said: Recall) -> None:
        """A neighbour has given back what it remembers of this device."""
        context = self._context
        if said.epoch != context.epoch:  # said before this device was started again
            return
        taken_in = any((context.device, context.epoch) in one.lives for one in context.state.views)
        if self._lives.recall(sender, said) and not (context.lost or taken_in):
            had, has = said.account, context.on_disk.commit.iteration
            context.note("lost", had=had.iteration if had else 0, has=has, sender=sender)
            context.save(replace(context.state, folder="lost"), self._requests.say_again)
        self._look_around()

    def _name_doubles(self) -> None:
        for device in self._lives.doubles:
            self._double(device)
            self._floods.say(Double(device))
        self._lives.doubles.clear()

    def _double(self, device: int) -> None:
        if device not in self._doubles:
            self._doubles.add(device)
            self._context.note("double", device=device)

    def _flooded(self, flood: Flood) -> None:
        origin, body = flood.origin, flood.body
        self._watch.meet(origin)
        match body:
            case Prepare():
                self._council.prepare(origin, body)
            case Promise():
                self._council.promise(origin, body)
            case Accept():
                self._council.accept(origin, body)
            case Accepted():
                self._council.accepted(flood, body)
            case NoPlan():
                self._council.no_plan(origin, body)
            case Double():
                self._double(body.device)
            case Suspect():
                self._suspect(body)
            case Join():
                self._triggers.join(origin, body)
            case Leave():
                self._triggers.leave(origin, body)
            case Replan():
                self._triggers.replan(origin, body)
        self._council.consider()

    # Chores -----------------------------------------------------------------------------------

    def _tick(self, name: str) -> None:
        context = self._context
        if name == "soon":
            self._signs.to_all()
            return
        self._ticks += 1
        context.timer("tick", context.settings.tick_s)
        context.save_again()
        if context.on_disk.incarnation != context.state.incarnation:
            return  # not begun yet
        self._floods.tick()
        self._look_around()
        self._work.tick()
        self._watch_learner()
        if self._lives.recalled and not self._starts_together:
            self._suspect_silent()
        if self._ticks % 4 == 0 and self._lives.recalled:
            self._use_healed_links()
            self._requests.say_again()
            self._ask_for_supplies()
        if self._ticks % 2 == 0:
            self._signs.to_all()
        self._council.tick()
        self._ending.give_up(self._council.since)

    def _ask_for_supplies(self) -> None:
        """Nobody gives what this device lacks: another view may find another giver, or none."""
        views = self._work.supplies.overdue()
        if views and self._work.aside:
            self._leave("nobody could give it what the others ended with", for_good=False)
        elif views > _VIEWS_WITHOUT:
            self._leave("no neighbour gives it the parameters that it lacks")
        elif views:
            self._requests.plan_anew("nobody gives it the parameters that it lacks")

    def _suspect_silent(self) -> None:
        stuck = self._work.averaging.outbox.stuck(self._context.settings.patience_s)
        suspects = self._watch.suspects(self._work.learner.allowed_s)
        for found in [*suspects, *((one, "takes no messages", False) for one in stuck)]:
            said = self._requests.suspect(*found)
            if said is not None:
                self._suspect(said)

    def _watch_learner(self) -> None:
        """A training that does not end is this device's own to report."""
        context, learner = self._context, self._work.learner
        hopeless, overdue = learner.hopeless(), learner.overdue()
        if hopeless:
            context.end(hopeless)
        elif overdue and context.member and not self._requests.leaving:
            said = self._requests.suspect(context.device, overdue, hung=True)
            if said is not None:
                self._suspect(said)

    def _suspect(self, said: Suspect) -> None:
        if self._starts_together or not self._triggers.suspect(said):
            return
        self._context.note("suspected", device=said.device, reason=said.reason)
        if self._context.settings.on_failure == "stop":
            self._ending.stop(
                f'device {said.device} failed ({said.reason}), and on_failure is "stop"'
            )
        else:
            self._council.consider()

    # Views ------------------------------------------------------------------------------------

    def _standing(self, promise: Promise) -> Promise:
        context, work = self._context, self._work
        return replace(
            promise,
            iteration=context.on_disk.commit.iteration,
            left_j=0.0 if self._broke else context.meter.left_j(),
            elapsed_s=context.on_disk.commit.planned_s * (1.0 - _ROUNDING),
            cut=self._watch.cut(),
            pending=work.supplies.pending,
            behind=work.aside or self._behind,
            gives=work.supplies.affordable,
            paid=(work.iteration, 0.0 if self._broke else work.learner.paid(work.iteration)),
            pace=work.learner.pace,
        )

    def _holds(self) -> bool:
        """Does this device hold the fleet's parameters, and stay?"""
        gone = self._requests.leaving or self._requests.short
        return not (gone or self._work.supplies.pending)

    def _installed(self, view: View) -> None:
        for newcomer, _ in view.gifts:
            self._watch.patient(newcomer)
            self._behind = self._behind and newcomer != self._context.device
        self._signs.installed()
        self._requests.installed()
        self._work.installed()
        self._signs.soon()

    def _cannot_pay(self, reason: str) -> None:
        """Ask for a plan that this device can pay; in the end, for one without a part for it."""
        iteration, start = self._work.iteration, self._context.view.start
        if self._work.finished:
            return
        if iteration < start:  # of an older view, which no plan can change: it is given the result
            self._behind = True
        elif iteration == start and iteration in self._unpaid:
            self._broke = True
        self._unpaid.add(iteration)
        self._requests.plan_anew(reason)

    def _will_be_short(self, reason: str) -> None:
        self._requests.plan_anew(reason)

    def _leave(self, reason: str, *, for_good: bool = True) -> None:
        self._work.ready = False
        self._requests.leave(reason, for_good=for_good)
