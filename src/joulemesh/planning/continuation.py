"""The rest of a plan, made again when devices have left or come back.

From who takes part, what they have left and which links carry nothing, every device makes the same
rest of the plan: scheme and routes on the remaining graph, and rounds by the policy over the
iterations to come. Nothing is planned that is not paid for. Where not all of it can be paid:

- a device that cannot pay for one more iteration takes no part (and whoever it cuts off);
- with ``plan.on_depletion = "leave"`` the others go on until they leave, as in any plan;
- otherwise there are fewer iterations: as many as everybody can pay for in time.
"""

from __future__ import annotations

__all__ = ["Continuation", "Continuer", "continue_plan"]

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.ledger import Ledger, total_of
from joulemesh.planning.allotment import Allotment
from joulemesh.planning.budget import missing_time
from joulemesh.planning.clock import keeps_total
from joulemesh.planning.digest import digest_of_timeline
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.planning.policy import Policy
from joulemesh.planning.remaining import Remaining, cut_off
from joulemesh.planning.rounds import stand_in
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.traced import causal_planner
from joulemesh.planning.waiting import Purse, Tried, Waiting, least_s
from joulemesh.registries import POLICIES
from joulemesh.tolerance import affordable

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Continuation:
    """A plan from some iteration on. Iterations count from 1.

    Attributes:
        ground: the scenario, made ready.
        timeline: every iteration of it.
        notes: what a reader should know, one line each.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> rest = Remaining.of(plan.ground, start=41, members=range(19), left_j=[100.0] * 19)
    >>> made = continue_plan(plan, rest)
    >>> made.start, made.last, int(made.rounds(41)[19]), made.active(41).sum()
    (41, 100, 0, np.int64(19))
    """

    ground: Ground
    timeline: Timeline
    notes: tuple[str, ...] = ()

    @classmethod
    def of_plan(cls, plan: Plan) -> Continuation:
        """A whole plan, from its first iteration on."""
        return cls(plan.ground, plan.timeline, plan.notes)

    @property
    def start(self) -> int:
        """The first iteration."""
        return self.timeline.first + 1

    @property
    def last(self) -> int:
        """The last iteration."""
        return self.timeline.first + len(self.timeline.rounds)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it decides; see `digest_of_timeline`."""
        return digest_of_timeline(self.ground.scenario, self.ground.work.model_bits, self.timeline)

    @property
    def events(self) -> tuple[Event, ...]:
        """Departures and outages."""
        return self.timeline.events

    def rounds(self, iteration: int) -> IntArray:
        """int64 [N]: local rounds; 0 for a device that takes no part."""
        return np.asarray(self.timeline.rounds[self._row(iteration)])

    def active(self, iteration: int) -> BoolArray:
        """bool [N]: who takes part."""
        return np.asarray(self.timeline.active[self._row(iteration)])

    def exchange_j(self, iteration: int) -> FloatArray:
        """float64 [N]: joules of the exchange."""
        row = self._row(iteration)
        return np.asarray(self.timeline.exchange.exchange_j[row])

    def exchange_s(self, iteration: int) -> float:
        """Seconds of the exchange."""
        return float(self.timeline.exchange.seconds[self._row(iteration)])

    def training_s(self, iteration: int) -> float:
        """Seconds of the slowest training."""
        return float((self.rounds(iteration) * self.ground.world.devices.round_latency_s).max())

    def rest_j(self, iteration: int) -> FloatArray:
        """float64 [N]: joules at rest, of those who take part, during the whole iteration."""
        seconds = self.training_s(iteration) + self.exchange_s(iteration)
        waits_j = Waiting.at(self.ground.world.devices).of(seconds)
        return np.where(self.active(iteration), waits_j, 0.0)

    def scheme(self, iteration: int) -> Scheme:
        """The scheme of an iteration."""
        t = self._row(iteration) + self.timeline.first
        return [scheme for since, scheme in self.timeline.schemes if since <= t][-1]

    def route(self, iteration: int) -> Route | None:
        """What is sent in an iteration; None where nothing is."""
        row, timeline = self._row(iteration), self.timeline
        t = row + timeline.first
        route: Route | None = timeline.route
        if timeline.routes is not None:
            route = timeline.routes[row]
        elif timeline.scheme.random:
            route = self.scheme(iteration).route(self.ground.costs(t), t)
        return route if route is not None and len(route.edge) else None

    def exact(self, iteration: int) -> bool:
        """Do all who take part hold the same mean after the exchange?"""
        row = self._row(iteration)
        exact = self.scheme(iteration).exact_at(row + self.timeline.first)
        return exact and bool(self.timeline.exchanged[row])

    def _row(self, iteration: int) -> int:
        if not self.start <= iteration <= self.last:
            raise ScenarioError(f"iteration {iteration} is not one of {self.start}..{self.last}")
        return iteration - self.start


def continue_plan(plan: Plan, rest: Remaining) -> Continuation:
    """The rest of a plan.

    What was planned stays where nothing has happened to it: those who were to take part do, over
    all their links, and can still pay for it in time. Who takes part is ``rest``'s to say, whatever
    ``devices.leave`` has.

    Args:
        plan: the whole.
        rest: who takes part from which iteration on, and what they have left.

    Raises:
        InfeasibleError: not even one iteration can be paid for in time; one line.
        ScenarioError: the plan has no such iteration.
    """
    ground = plan.ground.without_departures
    if not rest.first < plan.iterations:
        raise ScenarioError(
            f"the plan ends with iteration {plan.iterations}: none is left from {rest.first + 1} on"
        )
    planned = plan.timeline.from_row(rest.first)
    if _holds(planned, rest, ground):
        return Continuation(ground, planned, plan.notes)
    continuer = Continuer(ground, rest, plan.iterations)
    return Continuation(ground, continuer.timeline(), tuple(continuer.notes))


def _holds(planned: Timeline, rest: Remaining, ground: Ground) -> bool:
    """Can the rest of a plan be carried out as it was planned?"""
    devices, rounds = ground.world.devices, planned.rounds
    if rest.cut.any() or not np.array_equal(rest.active, planned.active[0]):
        return False
    exchange_j = total_of(planned.exchange.exchange_j)
    waits_j = Waiting.at(devices).over(planned)
    paid = affordable(rest.battery_j, devices.round_energy_j, exchange_j, waits_j)
    if (paid < rounds.sum(axis=0)).any():
        return False
    total_s, seconds = rest.limits(ground.scenario).total_s, planned.exchange.seconds
    return total_s is None or keeps_total(total_s, rounds, devices.round_latency_s, seconds)


class _PolicyError(Exception):
    """The policy does not allocate the rest of a plan, though it is paid for."""

    def __init__(self, reason: InfeasibleError | ScenarioError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Continuer:
    """Makes the rest of one plan; afterwards it has ``notes``, one line each.

    Args:
        ground: the scenario, made ready.
        rest: who takes part from which iteration on, and what they have left.
        iterations: number n of iterations of the whole plan.
    """

    def __init__(self, ground: Ground, rest: Remaining, iterations: int) -> None:
        self.ground, self.rest, self.iterations = ground, rest, iterations
        self.options, self.devices = ground.scenario.plan, ground.world.devices
        self.limits = rest.limits(ground.scenario)
        self.costs = ground.latest_forecast(rest.first)
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.policy = self._policy()
        self.least = self.policy.least(self.options)
        self._schemes: dict[int, Scheme] = {}
        self._latest: tuple[int, Ledger] | None = None

    def _policy(self) -> Policy:
        """The scenario's, or one in its place if it cannot allocate the rest of a plan."""
        asked = self.ground.policy
        return asked if asked.causal else self._instead()

    def _instead(self) -> Policy:
        asked = self.ground.policy
        name = stand_in(asked, self.options)
        self.notes.append(
            f'plan.rounds = "{asked.name}" cannot plan the rest of a plan anew; the rounds from '
            f'iteration {self.rest.first + 1} on follow "{name}"'
        )
        return POLICIES[name]

    def timeline(self) -> Timeline:
        """Every iteration of the rest.

        Raises:
            InfeasibleError: not even one can be paid for in time; one line.
        """
        if self.limits.total_s == 0.0:
            raise InfeasibleError(
                "no time is left for iteration {iteration}: {elapsed_s} of budget.total_s are "
                "over; raise it and deploy again",
                code="time",
                figures={"iteration": self.rest.first + 1, "elapsed_s": self.rest.elapsed_s},
                field="budget.total_s",
            )
        try:
            return self._planned()
        except _PolicyError as refusal:
            if self.policy is not self.ground.policy:
                raise refusal.reason from None
        self.policy = self._instead()
        self.least = self.policy.least(self.options)
        return self._planned()

    def _planned(self) -> Timeline:
        self._leave_unpaid()
        n, ground = self.iterations, self.ground
        leaving = self.options.on_depletion == "leave" and ground.policy.causal
        if not (leaving and self._in_time(n) and not self._paid(n)):
            n = self._longest()
            if not ground.world.changes:
                return self._result(self._static(n))
        return self._result(causal_planner(ground, n, rest=self.rest).walk())

    def _result(self, timeline: Timeline) -> Timeline:
        return replace(timeline, events=(*self.events, *timeline.events))

    # Who takes part -----------------------------------------------------------------------------

    def _leave_unpaid(self) -> None:
        """Go on without those who cannot pay for one iteration, and those whom they cut off."""
        self._leave_cut_off()
        while self.rest.active.sum() >= 2:
            prices, who = self._prices(self.rest.first + 1), self.rest.active
            price_j, waiting = prices.exchange_j[0], Waiting.at(self.devices)
            if waiting.counted:
                price_j = price_j.copy()
                among = waiting.among(who)
                price_j[who] += among.per_iteration(prices.seconds[:1], self.least)[0]
            affords = affordable(self.rest.battery_j, self.devices.round_energy_j, price_j)
            broke = self.rest.active & (affords < self.least)
            if not broke.any():
                return
            if (self.rest.active & ~broke).sum() < 2:
                raise self._too_poor(broke, price_j)
            self._leave(broke, "depleted", "the battery cannot pay for another iteration")
            self._leave_cut_off()
        raise InfeasibleError(
            f"fewer than two devices take part from iteration {self.rest.first + 1} on: there is "
            "nobody to exchange with; start others again",
            code="topology",
        )

    def _leave_cut_off(self) -> None:
        lost = cut_off(self.ground.world.graph, self.rest.active, self.rest.cut)
        if lost.any():
            self._leave(lost, "cut-off", "no path leads to the larger part of the network")

    def _leave(self, lost: BoolArray, kind: str, detail: str) -> None:
        who = tuple(np.flatnonzero(lost).tolist())
        self.events.append(Event(self.rest.first + 1, kind, who, detail))
        self.rest = self.rest.without(lost)
        self._schemes.clear()
        self._latest = None

    def _too_poor(self, broke: BoolArray, price_j: FloatArray) -> InfeasibleError:
        need_j = price_j + self.least * self.devices.round_energy_j
        device = int(np.argmax(np.where(broke, need_j - self.rest.battery_j, -np.inf)))
        return InfeasibleError(
            "fewer than two devices can pay for iteration {iteration}: {device} needs {needs_j} "
            "and has {has_j} left; charge the batteries",
            code="energy",
            device=device,
            figures={
                "iteration": self.rest.first + 1,
                "needs_j": need_j[device],
                "has_j": self.rest.battery_j[device],
            },
        )

    # How many iterations ------------------------------------------------------------------------

    def _scheme(self, n: int) -> Scheme:
        """The scheme of those who take part, in a plan of n iterations."""
        key = 0 if self.ground.alike else n  # a search for a ring takes a while
        if key not in self._schemes:
            rest = self.rest
            self._schemes[key] = self.ground.ready_among(
                rest.active, self.costs, rest.battery_j, n, cut=rest.cut, over=rest.first
            )
        return self._schemes[key]

    def _prices(self, n: int) -> Ledger:
        """Of the exchanges until iteration n; random schedules take long to price."""
        if self._latest is None or self._latest[0] != n:
            made = self.ground.prices(self._scheme(n), self.costs, self.rest.first, n)
            self._latest = n, made
        return self._latest[1]

    def _purse(self, prices: Ledger, n: int) -> Purse:
        """Of those who take part: what they have left, and what exchanges and waiting take."""
        exchange_j = total_of(prices[: n - self.rest.first].exchange_j)
        held_j, round_j = self.rest.battery_j, self.devices.round_energy_j
        return Purse(held_j, exchange_j, round_j, Waiting.at(self.devices)).among(self.rest.active)

    def _total(self, prices: Ledger, n: int) -> IntArray:
        """[A] rounds that the batteries pay for beside the exchanges, if iterations are short."""
        purse, rows = self._purse(prices, n), n - self.rest.first
        return purse.total(least_s(prices.seconds[:rows], purse.waiting.round_s, self.least))

    def _in_time(self, n: int) -> bool:
        """Is there time for the exchanges and the least rounds until iteration n?"""
        round_s = self.devices.round_latency_s[self.rest.active]
        limits = (self.limits.deadline_s, self.limits.total_s)
        exchange_s = self._prices(n).seconds
        return not missing_time(self.least, *limits, exchange_s, round_s)

    def _paid(self, n: int, *, trained: bool = True) -> bool:
        """Are the exchanges and the least rounds until iteration n paid for, in time?

        Where no round is compulsory, somebody still should train one, unless told otherwise.
        """
        if not self._in_time(n):
            return False
        total = self._total(self._prices(n), n)
        if (total < (n - self.rest.first) * self.least).any():
            return False
        idle = not self.ground.trains(n)[self.rest.first :].any()
        return bool(self.least or idle or not trained or self._allotted(n).rounds.any())

    def _longest(self) -> int:
        """The most iterations, up to those of the plan, that everybody can pay for in time."""
        for trained in (True, False):
            low, high = self.rest.first, self.iterations
            if self._paid(high, trained=trained):
                return high
            while low < high:
                middle = (low + high + 1) // 2
                if self._paid(middle, trained=trained):
                    low = middle
                else:
                    high = middle - 1
            if low > self.rest.first:
                self.notes.append(
                    f"the plan ends with iteration {low} instead of {self.iterations}: what is "
                    "left does not pay for more"
                )
                return low
        raise self._too_late()

    def _too_late(self) -> InfeasibleError:
        slowest_s = self.devices.round_latency_s[self.rest.active].max()
        training = " and training {rounds_s}" if self.least else ""
        return InfeasibleError(
            f"no time is left for iteration {{iteration}}: the exchange among {{count:device}} "
            f"takes {{exchange_s}}{training}; raise budget.deadline_s or budget.total_s and deploy "
            "again",
            code="time",
            figures={
                "iteration": self.rest.first + 1,
                "count": int(self.rest.active.sum()),
                "exchange_s": self._prices(self.rest.first + 1).seconds[0],
                "rounds_s": self.least * slowest_s,
            },
        )

    # The rounds ---------------------------------------------------------------------------------

    def _allotted(self, n: int) -> Tried:
        """Rounds [rows, A] and their caps, of those who take part."""
        prices, who = self._prices(n), self.rest.active
        rest = Allotment(
            self.ground,
            self.policy,
            n,
            self.devices.round_latency_s[who],
            self.limits,
            self.rest.first,
        )
        try:
            return rest.paid(self._purse(prices, n), prices.seconds)
        except (InfeasibleError, ScenarioError) as refusal:
            raise _PolicyError(refusal) from None

    def _static(self, n: int) -> Timeline:
        """All iterations at once."""
        scheme, prices, first = self._scheme(n), self._prices(n), self.rest.first
        who = self.rest.active
        found, total = self._allotted(n), np.zeros(len(who), np.int64)
        parts = (found.rounds, found.cap)
        rounds, cap = (np.zeros((len(part), len(who)), np.int64) for part in parts)
        rounds[:, who], cap[:, who], total[who] = found.rounds, found.cap, found.total
        return Timeline(
            scheme=scheme,
            route=scheme.route(self.costs, first),
            rounds=rounds,
            cap=cap,
            total=total,
            exchange=prices,
            active=np.broadcast_to(who, rounds.shape),
            exchanged=~scheme.silent(first, n),
            flooded=self.ground.expected_floods(scheme, first, n),
            schemes=((first, scheme),),
            first=first,
        )
