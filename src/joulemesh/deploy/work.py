"""The iterations of a device: train, exchange, commit."""

from __future__ import annotations

__all__ = ["Work"]

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.desk import Desk
from joulemesh.deploy.early import Key
from joulemesh.deploy.effects import Commit, Evaluate, Planned, Train, Trained
from joulemesh.deploy.exchange import Exchange, Outgoing
from joulemesh.deploy.inbox import Inbox
from joulemesh.deploy.messages import Absent, Beat, Fetch, Part
from joulemesh.deploy.parcels import Parcels
from joulemesh.deploy.planbook import Planbook
from joulemesh.deploy.plans import ViewPlan
from joulemesh.deploy.supplies import Supplies
from joulemesh.deploy.view import governing, stays
from joulemesh.deploy.watch import Watch

_NEVER = (-1, -1)


class Work:
    """Carries out one iteration after the other, each by the plan of the view that governs it.

    `advance` does whatever can be done now; it may be called at any time.

    Args:
        desk: the node's.
        watch: what is known of its neighbours.
        short: called with a reason when the battery does not hold enough for the plan.
    """

    def __init__(self, desk: Desk, watch: Watch, short: Callable[[str], None]) -> None:
        self._desk, self._watch, self._short = desk, watch, short
        self.supplies = Supplies(desk, watch, self._supplied)
        self.parcels = Parcels(desk, lambda: short("its battery does not pay for a message"))
        self.plans = Planbook(desk)
        self._inbox = Inbox(desk, self.plans)
        self.phase = "starting"
        self.ready = False
        self.halting = self.halted = False  # stop where nothing is lost
        self._exchange: Exchange | None = None
        self._key: Key = _NEVER
        self._progress = 0.0
        self._within_s = desk.settings.patience_s
        self._trainings: list[int] = []  # under way, in order; 0: no longer wanted
        self._saving = False
        self._elapsed_s, self._begun = desk.state.commit.elapsed_s, 0.0

    def begin(self) -> None:
        """The node is started."""
        self._begun = self._desk.now
        self.plans.of(self.iteration)

    @property
    def iteration(self) -> int:
        """The one that is being worked on."""
        return self._desk.state.commit.iteration + 1

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, of this start and those before."""
        return self._elapsed_s + self._desk.now - self._begun

    @property
    def frozen(self) -> bool:
        """Has this device promised to commit nothing until a view is decided?"""
        return self._desk.state.promised is not None

    @property
    def finished(self) -> bool:
        """Is the last iteration committed?"""
        return not self.supplies.pending and self.plans.done(self.iteration)

    def planned(self, event: Planned) -> None:
        """The plan of a view that is installed."""
        if self.plans.take(event):
            self.advance()

    # One iteration ----------------------------------------------------------------------------

    def advance(self) -> None:
        """Do whatever can be done now."""
        desk = self._desk
        if desk.ended or self._saving or not self.ready:
            return
        if not desk.member:
            self.phase = "waiting"
            return
        if self.supplies.pending:
            self.phase = "fetching"
            self.supplies.want(Fetch(desk.view.number, desk.view.start - 1, gift=True))
            return
        if self.finished:
            self.phase = "ended"
            return
        plan = self.plans.of(self.iteration)
        if plan is None or self.frozen:
            self.phase = "frozen" if self.frozen else "waiting"
            return
        if self.halting and self._exchange is None and not any(self._trainings):
            self.halted = True
            return
        trained = desk.state.trained
        if trained is None or trained[0] != self.iteration:
            self._train(plan)
        else:
            self._average(plan)

    def _train(self, plan: ViewPlan) -> None:
        t, desk = self.iteration, self._desk
        self.phase = "training"
        if t in self._trainings:
            return
        rounds = plan.rounds(t)
        if not desk.affords(desk.meter.train_j(rounds) + plan.price(t).exchange_j):
            self._short(f"its battery does not pay for iteration {t}")
        elif rounds == 0:
            self._keep_trained(plan, desk.state.commit.vector, desk.state.commit.memory)
        else:
            self._trainings.append(t)
            desk.meter.train(rounds)
            desk.emit(Train(t, rounds, desk.state.commit))

    def trained(self, event: Trained) -> None:
        """The learner is done."""
        wanted = self._trainings.pop(0) if self._trainings else 0
        plan = self.plans.of(self.iteration)
        if event.iteration == wanted == self.iteration and plan is not None:
            self._keep_trained(plan, event.vector, event.memory)

    def _keep_trained(
        self, plan: ViewPlan, vector: Vector, memory: Mapping[str, NDArray[Any]]
    ) -> None:
        desk = self._desk
        state = replace(desk.state, trained=(self.iteration, vector, memory))
        if plan.peer(self.iteration) is None:  # nobody will hear of it before it is committed
            desk.state = state
            self.advance()
        else:
            desk.save(state, self.advance)

    def _average(self, plan: ViewPlan) -> None:
        t, desk = self.iteration, self._desk
        key, exact = (plan.view.number, t), plan.exact(t)
        if exact and t < desk.view.start and not (self._key == key and self._complete):
            self.phase = "fetching"  # somebody has finished it
            self.supplies.want(Fetch(plan.view.number, t))
            return
        if self._key != key and not self._open(plan, key):
            return
        exchange = self._exchange
        if exchange is None:
            self._commit(plan, self._own)
        elif exchange.done:
            self._commit(plan, exchange.finish(), exact=exact, absent=tuple(exchange.absent))
        else:
            self.phase = "exchanging"

    @property
    def _complete(self) -> bool:
        return self._exchange is not None and self._exchange.done

    @property
    def _own(self) -> Vector:
        trained = self._desk.state.trained
        assert trained is not None
        return trained[1]

    def _open(self, plan: ViewPlan, key: Key) -> bool:
        """Begin the exchange of an iteration, with what has come of it already; False if it cannot
        be paid."""
        t = self.iteration
        peer, route = plan.peer(t), plan.route(t)
        if peer is not None and not self._desk.affords(plan.price(t).exchange_j):
            self._short(f"its battery does not pay for the exchange of iteration {t}")
            return False
        self._key, self._progress, self._exchange = key, self._desk.now, None
        if peer is None or route is None:
            return True
        settings = self._desk.settings
        self._within_s = plan.price(t).exchange_s * settings.slack + settings.patience_s
        self.supplies.within_s = self._within_s
        exchange = self._exchange = Exchange(peer, self._inbox.awaited(route), self._own)
        self._send(exchange.begin())
        for step, sender, payload in self._inbox.take(key):
            self._feed(step, sender, payload)
        self._go_without_the_gone()
        return True

    def _send(self, outgoing: list[Outgoing]) -> None:
        view, iteration = self._key
        for step, to, payload in outgoing:
            if stays(self._desk.state.views, view, self._desk.device, to):
                self.parcels.put(to, Part(view, iteration, step, payload), self._within_s)

    def _feed(self, step: int, sender: int, payload: Vector) -> bool:
        exchange = self._exchange
        if exchange is None or not exchange.takes(step, sender):
            return False
        self._progress = self._desk.now
        self._desk.meter.receive(sender, int(payload.nbytes))
        self._send(exchange.receive(step, sender, payload))
        return True

    def _commit(
        self,
        plan: ViewPlan,
        vector: Vector,
        *,
        exact: bool = False,
        absent: tuple[tuple[int, int], ...] = (),
    ) -> None:
        desk, t = self._desk, self.iteration
        before, trained = desk.state.commit, desk.state.trained
        assert trained is not None
        commit = Commit(
            iteration=t,
            vector=vector,
            memory=trained[2],
            spent_j=desk.meter.spent_j(),
            elapsed_s=self.elapsed_s,
            average=(t, vector) if exact else before.average,
            absent=absent,
            view=plan.view.number,
        )
        gift = desk.state.gift if self.supplies.owed() else None
        if self.supplies.owed() and before.iteration == desk.view.start - 1:
            gift = (before.iteration, before.vector)
        if exact:
            self.parcels.forget_delivered(self._key)
        self._save_commit(commit, gift)

    def _save_commit(self, commit: Commit, gift: tuple[int, Vector] | None = None) -> None:
        self._key, self._exchange, self._saving = _NEVER, None, True
        self.supplies.enough()
        state = replace(self._desk.state, commit=commit, trained=None, gift=gift)
        self._desk.save(state, self._committed)

    def _committed(self) -> None:
        self._saving = False
        commit = self._desk.state.commit
        self._desk.emit(Evaluate(commit.iteration, commit.vector))
        self._inbox.forget()
        self.advance()

    def _supplied(self, fetch: Fetch, vector: Vector) -> None:
        """The average of this iteration has come, or what a newcomer begins with."""
        desk, commit = self._desk, self._desk.state.commit
        plan, trained = self.plans.of(self.iteration), desk.state.trained
        if self.frozen or self._saving:
            return
        if fetch.gift:
            self._trainings = [0] * len(self._trainings)  # they began from something else
            given = replace(commit, iteration=fetch.iteration, vector=vector, view=fetch.view)
            spent_j = desk.meter.spent_j()
            self._save_commit(replace(given, average=None, absent=(), spent_j=spent_j))
        elif plan is not None and trained is not None and trained[0] == fetch.iteration:
            self._commit(plan, vector, exact=True)

    # What others send -------------------------------------------------------------------------

    def part(self, sender: int, part: Part) -> None:
        """A message of an exchange has come."""
        if (part.view, part.iteration) != self._key:
            self._inbox.keep(sender, part)
        elif self._feed(part.step, sender, part.payload):
            if self._complete:
                self.advance()
        else:
            self._inbox.refuse(sender, "came before, or is not on the route")

    def absent(self, sender: int, absent: Absent) -> None:
        """A neighbour was started again and has nothing more for this mixing."""
        plan = self.plans.get(absent.view)
        if (absent.view, absent.iteration) != self._key or plan is None:
            return
        if self._exchange is not None and not plan.exact(absent.iteration):
            self._send(self._exchange.go_without(sender))
            self.advance()

    def beat(self, sender: int, beat: Beat) -> None:
        """A neighbour says how far it is, and what it waits for."""
        for device, step in beat.waiting:
            if device != self._desk.device:
                continue
            wanted = beat.iteration + 1
            if not self.parcels.again(sender, wanted, step) and wanted < self.iteration:
                view = governing(self._desk.state.views, wanted).number
                self._desk.send(sender, Absent(view, wanted))
        self.parcels.forget(
            lambda key, to: to == sender and key[1] <= beat.iteration and key[0] <= beat.view
        )

    def waiting(self) -> tuple[tuple[int, int], ...]:
        """(neighbour, step): what holds this device up."""
        return tuple(self._exchange.waiting()) if self._exchange is not None else ()

    # Changes ----------------------------------------------------------------------------------

    def installed(self) -> None:
        """Another view governs the iterations from its start on."""
        views, device = self._desk.state.views, self._desk.device

        def over(key: Key) -> bool:
            return governing(views, key[1]).number != key[0]

        self.supplies.enough()
        self._inbox.forget()
        self.parcels.forget(lambda key, to: over(key) or not stays(views, key[0], device, to))
        if over(self._key):
            self._key, self._exchange = _NEVER, None
        self.plans.forget(self.iteration)
        self._go_without_the_gone()
        self.advance()

    def _go_without_the_gone(self) -> None:
        """A mixing of the past goes on without those that are gone since."""
        exchange, (number, iteration) = self._exchange, self._key
        plan = self.plans.get(number)
        if exchange is None or plan is None or plan.exact(iteration):
            return
        for sender in list(exchange.awaited.neighbours):
            if not stays(self._desk.state.views, number, self._desk.device, sender):
                self._send(exchange.go_without(sender))

    def tick(self) -> None:
        """Chores: send again, ask again, fetch where nothing comes any more."""
        self.parcels.tick()
        self.supplies.tick()
        exchange, (number, iteration) = self._exchange, self._key
        if exchange is None or exchange.done or self.frozen:
            return
        plan, desk = self.plans.get(number), self._desk
        if plan is None or not plan.exact(iteration):
            return
        if desk.now - self._progress > desk.settings.patience_s / 2.0 and any(
            beat.iteration >= iteration for beat in self._watch.beats.values()
        ):
            self.supplies.want(Fetch(number, iteration))
