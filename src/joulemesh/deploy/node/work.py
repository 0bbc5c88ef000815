"""The iterations of a device: train, exchange, commit."""

from __future__ import annotations

__all__ = ["Work"]

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.effects import Commit, Evaluate, Planned, Trained
from joulemesh.deploy.messages import Absent, Beat, Fetch, Part
from joulemesh.deploy.node.averaging import Averaging
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.learner import LearnerWatch
from joulemesh.deploy.node.planbook import Planbook
from joulemesh.deploy.node.supplies import Supplies
from joulemesh.deploy.node.watch import Watch
from joulemesh.deploy.plans import ViewPlan
from joulemesh.deploy.view import LATE, UNHELD, governing


class Work:
    """Carries out one iteration after the other, each by the plan of the view that governs it.

    `advance` does whatever can be done now; it may be called at any time.

    Args:
        context: the node's.
        watch: what is known of its neighbours.
        short: called with a reason when the battery does not hold enough for what comes now.
        will_be: called with a reason when it will not, for the rest of the plan.
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
        """The node is started."""
        self.averaging.outbox.remember()
        self.plans.of(self.iteration)

    @property
    def iteration(self) -> int:
        """The one that is being worked on."""
        return self._context.state.commit.iteration + 1

    @property
    def frozen(self) -> bool:
        """Has this device promised to commit nothing until a view is decided?"""
        return self._context.state.promised is not None

    @property
    def finished(self) -> bool:
        """Is the last iteration committed?"""
        return not self.supplies.pending and self.plans.done(self.iteration)

    @property
    def aside(self) -> bool:
        """Has the plan no part for this device any more?"""
        return not self.supplies.pending and self.plans.aside(self.iteration)

    @property
    def halted(self) -> bool:
        """Has it stopped where nothing is lost?"""
        busy = self._saving or self.learner.wanted or self.averaging.under_way
        return self.halting and not busy

    @property
    def at_end(self) -> bool:
        """Has this device finished, and is that on disk?"""
        if self.phase != "ended" or self._context.on_disk.commit is not self._context.state.commit:
            return False
        return self._context.member and self.finished

    def planned(self, event: Planned) -> None:
        """The plan of a view that is installed."""
        if self.plans.take(event):
            self.advance()

    # One iteration ----------------------------------------------------------------------------

    def advance(self) -> None:
        """Do whatever can be done now."""
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
        """The learner is done."""
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
        )
        if exact:
            self.averaging.outbox.averaged((plan.view.number, t))
        self._save_commit(commit, self._owed(before))

    def _lap(self) -> float:
        """Seconds of the iteration that ends now."""
        now = self._context.now
        lap_s = 0.0 if self._began is None else now - self._began
        self._began = now
        return lap_s

    def _owed(self, before: Commit) -> tuple[int, Vector] | None:
        """What a newcomer may still need."""
        context = self._context
        gift = context.state.gift if self.supplies.owed() else None
        if self.supplies.owed() and before.iteration == context.view.start - 1:
            gift = (before.iteration, before.vector)
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
            given = replace(commit, iteration=fetch.iteration, vector=vector, view=fetch.view)
            spent_j, planned_s = context.meter.spent_j(), context.view.elapsed_s
            self._save_commit(
                replace(given, average=None, absent=(), spent_j=spent_j, planned_s=planned_s)
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
        )
        context.state = replace(context.state, commit=commit, trained=None, sent=(), gift=None)
        context.emit(Evaluate(fetch.iteration, vector))
        context.end(f"{LATE} (of iteration {fetch.iteration})", complete=True)

    # What happens around it -------------------------------------------------------------------

    def part(self, sender: int, part: Part) -> None:
        """A message of an exchange has come."""
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
