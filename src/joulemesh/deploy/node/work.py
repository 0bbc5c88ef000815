"""The iterations of a device: train, exchange, commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.effects import Commit, Evaluate, Planned, Price, Train, Trained, ViewPlan
from joulemesh.deploy.messages import Absent, Beat, Fetch, Given, Part
from joulemesh.deploy.node.context import NodeContext, Planbook, Watch
from joulemesh.deploy.node.exchange import Averaging
from joulemesh.deploy.view import LATE, UNHELD, governing

_MEASURED = 4  # trainings, of which the slowest says what to expect
_HOPELESS = 10.0  # times the allowance, after which nobody waits any more
_LEAST_S = 1e-6  # planned, to compare with


@dataclass(eq=False)
class _Training:
    attempt: int
    iteration: int
    joules: float
    planned_s: float
    allowed_s: float
    since: float
    wanted: bool = True


class LearnerWatch:
    """Asks for one training at a time, and measures what each takes.

    A training that is no longer wanted is waited for all the same: the learner does one thing
    after the other, and what waited behind it would be paid for without being run.
    """

    def __init__(self, context: NodeContext, plans: Planbook) -> None:
        self._context, self._plans = context, plans
        self._now: _Training | None = None
        self._attempts = 0
        self._measured: deque[float] = deque(maxlen=_MEASURED)
        self._paid: tuple[int, float] = (0, 0.0)

    @property
    def busy(self) -> bool:
        return self._now is not None

    @property
    def wanted(self) -> bool:
        """Is it at something whose result is wanted?"""
        return self._now is not None and self._now.wanted

    def begin(self, iteration: int, rounds: int, price: Price) -> None:
        context, planned_s = self._context, rounds * price.round_s
        assert self._now is None
        self._attempts += 1
        joules = context.meter.train_j(rounds)
        self._paid = (iteration, joules)
        allowed_s = self.allowed_s(context.device, iteration)
        planned_s = max(planned_s, _LEAST_S)
        self._now = _Training(self._attempts, iteration, joules, planned_s, allowed_s, context.now)
        context.meter.train(rounds)
        commit = context.state.commit
        context.emit(Train(iteration, rounds, commit, self._attempts, price.iteration_s))

    def answered(self, event: Trained) -> bool:
        """The learner is done; False if what it did is no longer wanted."""
        training = self._now
        if training is None or event.attempt != training.attempt:
            return False
        self._now = None
        taken_s = event.seconds or self._context.now - training.since
        self._measured.append(taken_s / training.planned_s)
        return training.wanted

    def failed(self) -> None:
        self._now = None

    def disown(self) -> None:
        """Whatever it is at began from something else."""
        if self._now is not None:
            self._now.wanted = False

    def slept(self, seconds: float) -> None:
        """The whole process was stopped for so long, the learner too."""
        if self._now is not None:
            self._now.since += seconds

    def paid(self, iteration: int) -> float:
        """Joules of an iteration's training that is under way or kept, and not committed."""
        kept = self._context.state.trained
        there = self.wanted or (kept is not None and kept[0] == iteration)
        return self._paid[1] if there and self._paid[0] == iteration else 0.0

    # How long it may take ---------------------------------------------------------------------

    @property
    def pace(self) -> float:
        """How many times as long as planned training takes, as far as is known."""
        known = max(self._measured, default=1.0)
        if self._now is not None and self.overdue():
            known = max(known, (self._context.now - self._now.since) / self._now.planned_s)
        return max(1.0, known)

    def allowed_s(self, device: int, iteration: int) -> float:
        """Seconds that a member's training may take: a slow one is given its time."""
        settings, pace = self._context.settings, self._context.view.pace_of(device)
        return settings.slack * pace * self._plans.iteration_s(iteration) + settings.hang_s

    def overdue(self) -> str:
        """Why this device should be left out until its learner has answered; empty if not."""
        training, context = self._now, self._context
        if training is None:
            return ""
        limit_s = max(training.allowed_s, self.allowed_s(context.device, training.iteration))
        if context.now - training.since <= limit_s:
            return ""
        return f"training iteration {training.iteration} for {limit_s:.0f} s"

    def hopeless(self) -> str:
        """Why nobody should wait for the learner any longer; empty if there is hope."""
        training = self._now
        if training is None:
            return ""
        taken_s = self._context.now - training.since
        if taken_s <= _HOPELESS * training.allowed_s:
            return ""
        return (
            f"the learner has not answered for {taken_s:.0f} s (training iteration "
            f"{training.iteration}, planned for {training.planned_s:.3g} s)"
        )


class Supplies:
    """Asks for parameters until they come, and gives those that this device has."""

    def __init__(
        self,
        context: NodeContext,
        watch: Watch,
        came: Callable[[Fetch, Vector], None],
        poor: Callable[[str], None],
    ) -> None:
        self._context, self._watch, self._came, self._poor = context, watch, came, poor
        self._wanted: Fetch | None = None
        self._since = self._asked = 0.0
        self._turn = 0
        self._overdue: set[int] = set()  # views
        self._giving: set[int] = set()
        self._refused: set[tuple[int, int]] = set()  # (iteration, neighbour), for want of joules
        self.within_s = context.settings.patience_s

    @property
    def pending(self) -> bool:
        """Does this device lack its parameters: was it admitted just now, or has it lost them?"""
        view = self._context.view
        if self._context.lost:
            return True
        return self._context.on_disk.commit.view < view.number and any(
            newcomer == self._context.device for newcomer, _ in view.gifts
        )

    def want(self, fetch: Fetch) -> None:
        """Ask for parameters, unless they are asked for already."""
        if fetch != self._wanted:
            self._wanted, self._since = fetch, self._context.now
            self._ask()

    def enough(self) -> None:
        self._wanted = None

    def overdue(self) -> int:
        """In how many views has nobody answered for a long time? 0 if nothing is overdue now."""
        long_s = 4.0 * self._context.settings.patience_s
        if self._wanted is None or self._context.now - self._since <= long_s:
            return 0
        self._overdue.add(self._context.view.number)
        return len(self._overdue)

    def patient(self) -> None:
        self._since = self._context.now

    def tick(self) -> None:
        again_s = self._context.settings.patience_s / 4.0
        if self._wanted is not None and self._context.now - self._asked >= again_s:
            self._ask()

    def _ask(self) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        if wanted.gift:
            holders = [
                giver for one, giver in self._context.view.gifts if one == self._context.device
            ]
        else:
            beats = self._watch.beats
            holders = [
                one
                for one in self._context.neighbours
                if one in beats
                and beats[one].iteration >= wanted.iteration
                and not self._watch.silent(one)
            ]
        if holders:
            self._turn += 1
            self._asked = self._context.now
            self._context.send(holders[self._turn % len(holders)], wanted)

    def asked(self, sender: int, fetch: Fetch) -> None:
        """A neighbour asks; whoever has what it wants gives it, once at a time."""
        vector = self._gift(sender, fetch) if fetch.gift else self._average(fetch)
        if vector is None or sender in self._giving:
            return
        given = Given(fetch.view, fetch.iteration, vector, fetch.gift)
        if self._context.pay(sender, given):
            self._giving.add(sender)
            self._context.send(
                sender,
                given,
                within_s=self.within_s,
                answered=lambda came: self._giving.discard(sender),
            )
        elif (fetch.iteration, sender) not in self._refused:
            self._refused.add((fetch.iteration, sender))
            self._context.note("cannot-give", device=sender, iteration=fetch.iteration)
            if not self.affordable:
                self._poor(f"its battery does not pay for giving iteration {fetch.iteration}")

    @property
    def affordable(self) -> bool:
        """Does the battery pay for giving some neighbour the parameters that this device has?"""
        context, size = self._context, int(self._context.on_disk.commit.vector.nbytes)
        return any(context.affords(context.meter.send_j(to, size)) for to in context.neighbours)

    def _gift(self, newcomer: int, fetch: Fetch) -> Vector | None:
        state, view = self._context.on_disk, self._context.view
        if (newcomer, self._context.device) not in view.gifts or self.pending:
            return None
        if (fetch.view, fetch.iteration) != (view.number, view.start - 1):
            return None  # one of the two lacks a view
        if state.commit.iteration == view.start - 1:
            return state.commit.shared
        if state.gift is not None and state.gift[0] == view.start - 1:
            return state.gift[1]
        return None

    def _average(self, fetch: Fetch) -> Vector | None:
        state = self._context.on_disk
        commit, average = state.commit, state.commit.average
        if self.pending or governing(state.views, fetch.iteration).number != fetch.view:
            return None
        if commit.view < fetch.view:  # it was put out, and the others do that iteration again
            return None
        if commit.iteration == fetch.iteration:  # computed here, or given
            return commit.vector
        return average[1] if average is not None and average[0] == fetch.iteration else None

    def owed(self) -> bool:
        """Does a newcomer still need the parameters that this device held when the view began?"""
        view, beats = self._context.view, self._watch.beats
        return any(
            giver == self._context.device
            and not (
                newcomer in beats
                and beats[newcomer].view >= view.number
                and beats[newcomer].iteration >= view.start - 1
            )
            for newcomer, giver in view.gifts
        )

    def given(self, sender: int, given: Given) -> None:
        wanted = self._wanted
        if wanted == Fetch(given.view, given.iteration, given.gift):
            self._context.meter.receive(sender, int(given.payload.nbytes))
            self._wanted = None
            self._overdue.clear()
            kind = "gift" if given.gift else "fetched"
            self._context.note(kind, iteration=given.iteration, giver=sender)
            self._came(wanted, given.payload)


class Work:
    """Carries out one iteration after the other, each by the plan of the view that governs it.

    `advance` does whatever can be done now; it may be called at any time.
    """

    def __init__(
        self,
        context: NodeContext,
        watch: Watch,
        short: Callable[[str], None],
        will_be: Callable[[str], None],
    ) -> None:
        self._context, self._watch, self._short, self._will_be = context, watch, short, will_be
        self.plans = Planbook(context)
        self.learner = LearnerWatch(context, self.plans)
        self.supplies = Supplies(context, watch, self._supplied, will_be)
        self.averaging = Averaging(context, self.plans, short)
        self.phase = "starting"
        self.ready = False
        self.halting = False  # stop where nothing is lost
        self._saving = False
        self._ended_with: Fetch | None = None  # a fleet that ended while this device was away
        self._began: float | None = None  # the present iteration, as far as it counts

    def begin(self) -> None:
        self.averaging.outbox.remember()
        self.plans.of(self.iteration)

    @property
    def iteration(self) -> int:
        return self._context.state.commit.iteration + 1

    @property
    def frozen(self) -> bool:
        """Has this device promised to commit nothing until a view is decided?"""
        return self._context.state.promised is not None

    @property
    def finished(self) -> bool:
        return not self.supplies.pending and self.plans.done(self.iteration)

    @property
    def aside(self) -> bool:
        """Has the plan no part for this device any more?"""
        return not self.supplies.pending and self.plans.aside(self.iteration)

    @property
    def halted(self) -> bool:
        busy = self._saving or self.learner.wanted or self.averaging.under_way
        return self.halting and not busy

    @property
    def at_end(self) -> bool:
        """Has this device finished, and is that on disk?"""
        if self.phase != "ended" or self._context.on_disk.commit is not self._context.state.commit:
            return False
        return self._context.member and self.finished

    def planned(self, event: Planned) -> None:
        if self.plans.take(event):
            self.advance()

    # One iteration ----------------------------------------------------------------------------

    def advance(self) -> None:
        context = self._context
        if context.ended or self._saving or not self.ready:
            return
        if not context.member or context.view.digest == UNHELD:
            self.phase = "waiting"
            return
        if self.supplies.pending:
            self.phase = "fetching"
            self.supplies.want(Fetch(context.view.number, context.view.start - 1, gift=True))
            return
        if self.finished:
            self.phase = "ended"
            return
        plan = self.plans.of(self.iteration)
        if plan is None or self.frozen:
            self.phase = "frozen" if self.frozen else "waiting"
        elif self.aside:
            self._wait_for_the_last(plan)
        elif not self.halted:
            self._work(plan)

    def _wait_for_the_last(self, plan: ViewPlan) -> None:
        """Without a part in the plan: take up what the others end with."""
        self.phase = "waiting"
        if any(beat.iteration >= plan.last for beat in self._watch.beats.values()):
            self.phase = "fetching"
            self.supplies.want(Fetch(plan.view.number, plan.last))

    def _work(self, plan: ViewPlan) -> None:
        t, trained = self.iteration, self._context.state.trained
        if self._context.device not in plan.active(t):
            self.phase = "waiting"
            self._short(f"it had no part in iteration {t}")
        elif trained is None or trained[0] != t:
            self._train(plan)
        elif plan.exact(t) and t < self._context.view.start and not self.averaging.done(plan, t):
            self.phase = "fetching"  # somebody has finished it
            self.supplies.want(Fetch(plan.view.number, t))
        else:
            self._average(plan, trained[1])

    def _train(self, plan: ViewPlan) -> None:
        t, context = self.iteration, self._context
        self.phase = "training"
        if self.learner.busy:
            return
        rounds = plan.rounds(t)
        price = plan.price(t)
        if not context.affords(context.meter.train_j(rounds) + price.exchange_j + price.rest_j):
            self._short(f"its battery does not pay for iteration {t}")
            return
        if t > context.view.start and not context.affords(plan.rest_j(t)):
            self._will_be(f"its battery will not pay for iterations {t} to {plan.last}")
        if rounds == 0:
            self._began = context.now if self._began is None else self._began
            commit = context.state.commit
            self._keep_trained(plan, Trained(t, commit.vector, commit.memory, repeatable=True))
        else:
            self.learner.begin(t, rounds, price)

    def trained(self, event: Trained) -> None:
        wanted, plan = self.learner.answered(event), self.plans.of(self.iteration)
        if self._began is None:  # the first since the start: compiling and waiting do not count
            self._began = self._context.now - event.seconds
        wanted = wanted and self._context.member and event.iteration == self.iteration
        if wanted and plan is not None:
            self._keep_trained(plan, event)
        else:
            self.advance()

    def _keep_trained(self, plan: ViewPlan, event: Trained) -> None:
        context = self._context
        state = replace(context.state, trained=(event.iteration, event.vector, event.memory))
        if event.repeatable or plan.peer(event.iteration) is None:
            context.state = (
                state  # nobody hears of it before it is committed, or it can be repeated
            )
            self.advance()
        else:
            self._saving = True
            context.save(state, self._saved)

    def _saved(self) -> None:
        self._saving = False
        self.advance()

    def _average(self, plan: ViewPlan, own: Vector) -> None:
        t = self.iteration
        if not self.averaging.begin(plan, t, own):
            return
        self.phase = "exchanging"
        self.supplies.within_s = self.averaging.within_s
        if self.averaging.done(plan, t):
            vector, absent = self.averaging.result(own)
            exact = self.averaging.under_way and plan.exact(t)
            self._commit(plan, vector, exact=exact, absent=absent)

    def _commit(
        self,
        plan: ViewPlan,
        vector: Vector,
        *,
        exact: bool,
        absent: tuple[tuple[int, int], ...] = (),
    ) -> None:
        context, t = self._context, self.iteration
        before, trained = context.state.commit, context.state.trained
        assert trained is not None
        if not np.isfinite(vector).all():
            context.end(
                f"the average of iteration {t} is not finite, though all its parts are; the "
                f"parameters of iteration {t - 1} are kept: lower training.learning_rate"
            )
            return
        commit = Commit(
            iteration=t,
            vector=vector,
            memory=trained[2],
            spent_j=context.meter.spent_j(),
            elapsed_s=before.elapsed_s + self._lap(),
            planned_s=before.planned_s + plan.price(t).iteration_s,
            average=(t, vector) if exact else before.average,
            absent=absent,
            view=plan.view.number,
            **self._owing(before, exact=exact),
        )
        if exact:
            self.averaging.outbox.averaged((plan.view.number, t))
        self._save_commit(commit, self._owed(before))

    def _owing(self, before: Commit, *, exact: bool) -> dict[str, Vector | None]:
        """What is owed after an iteration, where messages are quantised, and the last average."""
        if before.owed is None or not exact:
            return {"owed": before.owed, "agreed": None if before.owed is None else before.shared}
        owed = self.averaging.owed
        # Who was started again while others averaged does not know what its messages have lost.
        return {"owed": np.zeros_like(before.owed) if owed is None else owed, "agreed": None}

    def _lap(self) -> float:
        now = self._context.now
        lap_s = 0.0 if self._began is None else now - self._began
        self._began = now
        return lap_s

    def _owed(self, before: Commit) -> tuple[int, Vector] | None:
        context = self._context
        gift = context.state.gift if self.supplies.owed() else None
        if self.supplies.owed() and before.iteration == context.view.start - 1:
            gift = (before.iteration, before.shared)
        return gift

    def _save_commit(self, commit: Commit, gift: tuple[int, Vector] | None = None) -> None:
        self._saving = True
        self.averaging.close()
        self.supplies.enough()
        sent = self.averaging.outbox.mixed()
        state = replace(self._context.state, commit=commit, trained=None, sent=sent, gift=gift)
        self._context.save(state, self._committed)

    def _committed(self) -> None:
        commit = self._context.state.commit
        plan, t = self.plans.get(commit.view), commit.iteration
        exact = plan is not None and commit.average is not None and commit.average[0] == t
        holders = plan.active(t) if plan is not None and exact else ()
        self._context.emit(Evaluate(t, commit.vector, holders))
        self.averaging.forget()
        self._saved()

    def _supplied(self, fetch: Fetch, vector: Vector) -> None:
        """The average of this iteration has come, or what a newcomer begins with."""
        context, commit = self._context, self._context.state.commit
        if fetch == self._ended_with:
            self._take_last(fetch, vector)
            return
        plan, trained = self.plans.of(self.iteration), context.state.trained
        if self.frozen or self._saving:
            return
        if fetch.gift:
            self.learner.disown()
            self._began = None
            given = replace(commit, iteration=fetch.iteration, vector=vector, agreed=None)
            spent_j, planned_s = context.meter.spent_j(), context.view.elapsed_s
            self._save_commit(
                replace(
                    given,
                    average=None,
                    absent=(),
                    spent_j=spent_j,
                    planned_s=planned_s,
                    view=fetch.view,
                )
            )
        elif self.aside and plan is not None and fetch.iteration == plan.last:
            self._take_the_last(plan, vector)
        elif plan is not None and trained is not None and trained[0] == fetch.iteration:
            self._commit(plan, vector, exact=True)

    def _take_the_last(self, plan: ViewPlan, vector: Vector) -> None:
        """The others have ended, and this device has what they ended with."""
        context, before, last = self._context, self._context.state.commit, plan.last
        missed = range(self.iteration, last + 1)
        self.learner.disown()
        self._save_commit(
            replace(
                before,
                iteration=last,
                vector=vector,
                view=plan.view.number,
                spent_j=context.meter.spent_j(),
                planned_s=before.planned_s + sum(plan.price(t).iteration_s for t in missed),
                average=(last, vector) if plan.exact(last) else before.average,
                absent=(),
                agreed=None,
            )
        )

    def late(self, sender: int, beat: Beat) -> None:
        """A neighbour has ended, and is further than this device: ask for what it ended with.

        The fleet is over, and whoever is left cannot agree on anything any more. What this device
        has committed by an older view than that iteration follows, the others have done again.
        """
        commit, views = self._context.state.commit, self._context.state.views
        done_again = (
            beat.iteration == commit.iteration
            and commit.view < governing(views, beat.iteration).number
        )
        lacks = beat.iteration > commit.iteration or done_again or self._context.lost
        if lacks and not self._saving:
            self._ended_with = Fetch(beat.view, beat.iteration)
            self.phase = "fetching"
            self.supplies.want(self._ended_with)

    def _take_last(self, fetch: Fetch, vector: Vector) -> None:
        """Keep the parameters that the fleet ended with, and end."""
        context = self._context
        self.averaging.close()
        commit = Commit(
            iteration=fetch.iteration,
            vector=vector,
            memory=context.state.commit.memory,
            spent_j=context.meter.spent_j(),
            elapsed_s=context.state.commit.elapsed_s,
            average=(fetch.iteration, vector),
            view=fetch.view,
            owed=context.state.commit.owed,
        )
        context.state = replace(context.state, commit=commit, trained=None, sent=(), gift=None)
        context.emit(Evaluate(fetch.iteration, vector))
        context.end(f"{LATE} (of iteration {fetch.iteration})", complete=True)

    # What happens around it -------------------------------------------------------------------

    def part(self, sender: int, part: Part) -> None:
        if self.averaging.part(sender, part):
            self.advance()

    def absent(self, sender: int, absent: Absent) -> None:
        """A neighbour was started again and has nothing more for this mixing."""
        if self.averaging.absent(sender, absent):
            self.advance()

    def beat(self, sender: int, beat: Beat) -> None:
        """A neighbour says how far it is, and what it waits for."""
        self.averaging.beat(sender, beat)
        if self.aside:
            self.advance()

    def installed(self) -> None:
        """Another view governs the iterations from its start on."""
        self.supplies.enough()
        self.plans.forget(self.iteration)
        if not self._context.member or self.supplies.pending:
            self.averaging.close()  # what it was about is over for this device
        self.averaging.installed()
        self.advance()

    def tick(self) -> None:
        """Chores: send again, ask again, fetch where nothing comes any more."""
        self.averaging.outbox.tick()
        self.supplies.tick()
        stalled = None if self.frozen else self.averaging.stalled()
        if stalled is not None and any(
            beat.iteration >= stalled.iteration for beat in self._watch.beats.values()
        ):
            self.supplies.want(stalled)
