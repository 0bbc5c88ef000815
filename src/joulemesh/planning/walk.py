"""Planning as time goes by: fading, traces, departures, and the rest of a plan made again.

Iteration t uses the gains known by then, and for the future the link energy at a quantile
(`plan.fade_quantile`): of the fading model, or of what a trace has shown so far. What an exchange
to come is forecast to cost is kept in reserve, so an exchange happens only if everybody can pay for
it out of what is not reserved and still meets the deadline; otherwise it is an outage: skipped,
nothing charged, recorded. The total time, where one is given, is treated like a battery: seconds of
exchanges to come are kept in reserve.

With traces, whoever is there, can be reached and can pay takes part; the others neither train nor
relay nor pay, and come back as soon as that changes, with a neighbour's parameters (`givers`). What
an iteration harvests is in the batteries from the next one on, as far as they have room. Of the
harvest to come nothing is known: rounds are planned with the mean of what each device has gathered
so far (``plan.harvest_forecast``), and no iteration spends more than its batteries hold.

When devices have left or come back, everybody makes the same rest of the plan: scheme and routes on
the remaining graph, and rounds by the policy over the iterations to come. Where not all of it can
be paid for, a device that cannot pay for one more iteration takes no part (and whoever it cuts
off); with ``plan.on_depletion = "leave"`` the others go on until they leave; otherwise there are as
many iterations as everybody can pay for in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import RoutesToTry, Scheme
from joulemesh.base.errors import Edit, InfeasibleError, Remedy, ScenarioError
from joulemesh.ledger import Ledger, paced_j, total_of
from joulemesh.planning.budget import (
    Allotment,
    Purse,
    TimeLeft,
    TimeLimits,
    Tried,
    Waiting,
    at_least,
    keeps_total,
    least_s,
    longest_s,
    missing_time,
    most_rounds,
)
from joulemesh.planning.clocks import at_pace, just_in_time, pace
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Event, Plan, Timeline, digest_of_timeline
from joulemesh.planning.policy import Policy, allocate
from joulemesh.planning.powers import with_powers
from joulemesh.planning.rounds import stand_in
from joulemesh.registries import POLICIES
from joulemesh.scenario import Scenario
from joulemesh.tolerance import affordable, left_of, within
from joulemesh.world.links import LinkCosts
from joulemesh.world.topology import Graph, components
from joulemesh.world.traces import Snapshot, Traces

__all__ = [
    "CausalPlanner",
    "Continuation",
    "Continuer",
    "Recharged",
    "Remaining",
    "TracedPlanner",
    "causal_planner",
    "continue_plan",
    "cut_off",
    "gift_route",
    "givers",
    "origins",
    "recharged",
    "with_departures",
]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Remaining:
    """The state from which the rest of a plan is made."""

    first: int  # its first iteration, from 0
    active: BoolArray  # bool [N]: who takes part
    battery_j: FloatArray  # float64 [N]: what each may still spend; 0 for those who take no part
    cut: BoolArray  # bool [E]: links that carry nothing
    elapsed_s: float = 0.0  # seconds that earlier iterations have taken

    @classmethod
    def all_of(cls, ground: Ground) -> Remaining:
        """A whole plan: everybody, from the first iteration on."""
        graph = ground.world.graph
        active, cut = np.ones(graph.devices, np.bool_), np.zeros(len(graph.edges), np.bool_)
        return cls(0, active, ground.world.devices.energy_budget_j.copy(), cut)

    @classmethod
    def of(
        cls,
        ground: Ground,
        *,
        start: int,
        members: Sequence[int],
        left_j: Sequence[float],
        cut: Iterable[tuple[int, int]] = (),
        elapsed_s: float = 0.0,
        reserve: float = 0.0,
    ) -> Remaining:
        """The state of some members."""
        graph, held = ground.world.graph, ground.world.devices.energy_budget_j
        _require_sound(graph, start, members, left_j, elapsed_s)
        who, active = np.array(members, np.int64), np.zeros(graph.devices, np.bool_)
        active[who] = True
        battery_j = np.zeros(graph.devices)
        usable_j = np.array(left_j, np.float64) - reserve * held[who]
        battery_j[who] = np.clip(usable_j, 0.0, held[who])
        pairs = {(min(pair), max(pair)) for pair in cut}
        gone = np.array([tuple(ends) in pairs for ends in graph.edges.tolist()], np.bool_)
        return cls(start - 1, active, battery_j, gone, float(elapsed_s))

    def without(self, lost: BoolArray) -> Remaining:
        """The same without some devices, bool [N]."""
        return replace(
            self, active=self.active & ~lost, battery_j=np.where(lost, 0.0, self.battery_j)
        )

    def limits(self, scenario: Scenario) -> TimeLimits:
        """The time that is left of what the scenario allows."""
        limits = TimeLimits.of(scenario)
        if limits.total_s is None or not self.elapsed_s:
            return limits
        return replace(limits, total_s=max(0.0, limits.total_s - self.elapsed_s))


def _require_sound(
    graph: Graph, start: int, members: Sequence[int], left_j: Sequence[float], elapsed_s: float
) -> None:
    known = len(set(members)) == len(members) and all(0 <= i < graph.devices for i in members)
    if not known:
        raise ScenarioError(
            f"the members {tuple(members)} are not different devices of 0..{graph.devices - 1}"
        )
    if len(left_j) != len(members) or not np.isfinite(left_j).all():
        raise ScenarioError(
            f"{len(members)} members need as many finite numbers of joules, not {tuple(left_j)}"
        )
    if start < 1 or not 0 <= elapsed_s < math.inf:
        raise ScenarioError(
            f"the rest of a plan begins with iteration 1 or later, after 0 s or more; not with "
            f"iteration {start} after {elapsed_s:g} s"
        )


def cut_off(
    graph: Graph, active: BoolArray, cut: BoolArray, holders: BoolArray | None = None
) -> BoolArray:
    """bool [N]: the active devices from which no path leads to the largest part of the others."""
    part = Subgraph.of(graph, active, cut)
    parts, label = components(part.edges, part.devices)
    lost = np.zeros_like(active)
    if parts > 1:
        size = np.bincount(label)
        if holders is not None:
            held = np.bincount(label, holders[part.members], parts) > 0
            size = np.where(held & (size > 1), size + len(label), size)
        lost[part.members[label != size.argmax()]] = True
    return lost


class Recharged(NamedTuple):
    """The batteries after an iteration, float64 [N] each."""

    held_j: FloatArray  # what they hold
    stored_j: FloatArray  # what they have gained
    spilled_j: FloatArray  # what they had no room for


def recharged(
    traces: Traces,
    held_j: FloatArray,
    iteration: int,
    elapsed_s: float,
    length_s: float,
) -> Recharged | None:
    """Add what an iteration harvests; None where nobody ever harvests anything."""
    gathered_j = traces.harvested_j(iteration, elapsed_s, length_s)
    if gathered_j is None:
        return None
    stored_j = gathered_j
    if traces.capacity_j is not None:
        stored_j = np.clip(traces.capacity_j - held_j, 0.0, gathered_j)
    return Recharged(held_j + stored_j, stored_j, gathered_j - stored_j)


IntArray = NDArray[np.int64]


def givers(
    left_j: Mapping[int, float], newcomers: Collection[int], links: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Each newcomer with the neighbour that gives to it, which may be a newcomer served before."""
    # Of several the one with the most joules left gives, since a gift has to be paid for.
    near: dict[int, list[int]] = {device: [] for device in sorted(left_j)}
    for a, b in links:
        if a in near and b in near:
            near[a].append(b)
            near[b].append(a)
    found: dict[int, int] = {}
    edge = left_j.keys() - set(newcomers)
    while edge:
        reached: dict[int, int] = {}
        for giver in sorted(edge, key=lambda one: (-left_j[one], one)):
            for other in sorted(near[giver]):
                if other in newcomers and other not in found:
                    reached.setdefault(other, giver)
        found |= reached
        edge = set(reached)
    return tuple(sorted(found.items()))


def origins(gifts: Collection[tuple[int, int]]) -> dict[int, int]:
    """The device whose parameters each newcomer ends up with."""
    giver, found = dict(gifts), dict(gifts)
    for newcomer in giver:
        while found[newcomer] in giver:
            found[newcomer] = giver[found[newcomer]]
    return found


def gift_route(gifts: Collection[tuple[int, int]], edges: IntArray, bits: float) -> Route:
    """What is sent so that every newcomer has its gift."""
    giver = dict(gifts)
    depth: dict[int, int] = {}
    for newcomer in giver:
        hops, device = 0, giver[newcomer]
        while device in giver:
            hops, device = hops + 1, giver[device]
        depth[newcomer] = hops
    order = sorted(giver, key=lambda newcomer: (depth[newcomer], newcomer))
    pairs = np.array([sorted((giver[one], one)) for one in order], np.int64)
    span = int(edges.max()) + 1
    links = np.searchsorted(edges @ [span, 1], pairs @ [span, 1])
    used, edge = np.unique(links, return_inverse=True)
    return Route.build(
        "gift",
        edges=edges[used],
        edge=edge,
        forward=np.array([giver[one] < one for one in order]),
        step=np.array([depth[one] for one in order]),
        bits=bits,
        repeats=1,
        uses=1,
    ).on_links(used)


class CausalPlanner:
    """Walks through the iterations once, spending from the batteries as it goes."""

    def __init__(
        self,
        ground: Ground,
        iterations: int,
        remedy: Callable[[float], Remedy] | None = None,
        rest: Remaining | None = None,
    ) -> None:
        """Args: ground, number n of iterations, what a refusal advises, and where to begin."""
        world, options = ground.world, ground.scenario.plan
        if not ground.policy.causal:
            raise ScenarioError(
                f'plan.rounds = "{options.rounds}" plans once and for all, and not under fading, '
                'with traces or with plan.on_depletion = "leave"',
                remedies=[(Edit("plan.rounds", "theorem4"),)],
            )
        self.ground, self.world = ground, world
        self.options, self.iterations = options, iterations
        self.remedy = remedy or (
            lambda need_j: (Edit("budget.energy_j", at_least(need_j), "raise"),)
        )
        self.least = ground.least
        self.round_j, self.round_s = world.devices.round_energy_j, world.devices.round_latency_s
        rest = Remaining.all_of(ground) if rest is None else rest
        self.first, self.cut = rest.first, rest.cut
        self.time = TimeLeft(rest.limits(ground.scenario), self.round_s)
        self.snapshot: Snapshot | None = None  # of devices that move
        self.forecast_costs = ground.latest_forecast(self.first)
        self.battery = self.budget_j = rest.battery_j
        self.active, self.waiting = rest.active, Waiting.at(world.devices)
        self.hint_s: float | None = None  # that iterations to come take, where waiting costs
        self.events: list[Event] = []
        self.floods: list[int] = []  # iterations in which coordination is paid
        self.flooded: tuple[object, ...] | None = None  # the tree that it was last paid for

    # The forecast -----------------------------------------------------------------------------

    def _renewed(self, t: int, forecast: Forecast) -> Forecast:
        """The forecast by what has been seen since the last: a trace teaches, a model does not."""
        edition = self.world.channel.edition
        if t == self.first or edition(t) == edition(t - 1):
            return forecast
        self.forecast_costs = self.ground.forecast_at(t)
        return self._priced(t, forecast.scheme)

    def forecast(self, since: int) -> Forecast:
        """Scheme and prices for the devices that take part, at the fade quantile."""
        scheme = self.ground.ready_among(
            self.active,
            self.forecast_costs,
            self.battery,
            self.iterations,
            cut=self.cut,
            over=self.first,
        )
        return self._priced(since, scheme)

    def _priced(self, since: int, scheme: Scheme) -> Forecast:
        prices = self.ground.prices(scheme, self.forecast_costs, since, self.iterations)
        return Forecast(since, scheme, scheme.routes(self.forecast_costs), prices)

    # The walk ---------------------------------------------------------------------------------

    def walk(self) -> Timeline:
        """Plan every iteration in turn."""
        n, count = self.iterations - self.first, len(self.battery)
        rounds, cap = np.zeros((n, count), np.int64), np.zeros((n, count), np.int64)
        paid: list[Ledger] = []
        active, exchanged = np.zeros((n, count), np.bool_), np.zeros(n, np.bool_)
        routes: list[Route | None] = []
        whole = forecast = self.forecast(self.first)
        scheme, first_costs = whole.scheme, self.forecast_costs
        schemes: dict[int, Scheme] = {self.first: scheme}
        for row, t in enumerate(range(self.first, self.iterations)):
            forecast = self._gathered(t, forecast)
            if self.active.sum() < 2 and not self.waits:
                self._record(t, "ended", self.active, "fewer than two devices remain")
                n = row
                break
            if forecast.scheme is not scheme:
                schemes[t] = scheme = forecast.scheme
            costs = self.ground.costs(t, self.snapshot)
            route, price, rounds[row], cap[row] = self._iteration(t, forecast, costs)
            price_j, price_s = price.exchange_j[0], float(price.seconds[0])
            routes.append(route)
            paid.append(price)
            active[row], exchanged[row] = self.active, route is not None and bool(len(route.edge))
            self._pay(price_j, rounds[row], price_s)
            self.time.pay(rounds[row], price_s)
            self._passed(t, rounds[row], price_s)
        if n == 0:
            self._refuse_the_first(whole)
        made = Timeline(
            scheme=schemes[self.first],
            route=schemes[self.first].route(first_costs, self.first),
            rounds=rounds[:n],
            cap=cap[:n],
            total=np.zeros(count, np.int64),
            exchange=Ledger.joined(paid),
            active=active[:n],
            exchanged=exchanged[:n],
            flooded=np.isin(self.first + np.arange(n), self.floods),
            schemes=tuple(schemes.items()),
            routes=tuple(routes),
            events=tuple(self.events),
            first=self.first,
        )
        return replace(made, total=self._total(self.budget_j, made))

    def _total(self, supplied_j: FloatArray, made: Timeline) -> IntArray:
        """[N] rounds that so many joules pay for beside all exchanges and waiting."""
        waits_j = self.waiting.over(made)
        return affordable(supplied_j, self.round_j, made.exchange.exchange_j.sum(axis=0), waits_j)

    def _pay(self, price_j: FloatArray, rounds: IntArray, price_s: float) -> None:
        waits_j = np.where(self.active, self.waiting.of_iteration(rounds, price_s), 0.0)
        self.battery = left_of(self.battery, price_j, rounds * self.round_j, waits_j)

    def waits_j(self, exchange_s: float, rounds: int) -> FloatArray:
        """Joules [N] at rest while exchanges take so long, and the slowest trains."""
        slowest_s = float(self.round_s[self.active].max()) if self.active.any() else 0.0
        return self.waiting.of(exchange_s + rounds * slowest_s)

    def affords(self, *fixed_j: FloatArray, coming_j: FloatArray | None = None) -> IntArray:
        """[N] rounds that the batteries pay for beside some joules [N], with what may come."""
        held_j = self.battery if coming_j is None else self.battery + coming_j
        return affordable(held_j, self.round_j, *fixed_j)

    # Where nothing but the channel changes ------------------------------------------------------

    waits = False  # does the plan go on where fewer than two devices are there?

    def _gathered(self, t: int, forecast: Forecast) -> Forecast:
        """Decide who takes part in an iteration; the forecast among them."""
        return self._departures(t, self._renewed(t, forecast))

    def coming_j(self, t: int) -> FloatArray | None:
        """[N] joules that batteries are expected to gain after an iteration; None for nothing."""
        return None

    def _besides(self, t: int, costs: LinkCosts) -> tuple[Ledger, ...]:
        """What is paid for in an iteration beside its exchange and training."""
        return ()

    def _passed(self, t: int, rounds: IntArray, price_s: float) -> None:
        """An iteration is over."""

    def _refuse_the_first(self, forecast: Forecast) -> None:
        """Nobody is left to exchange with in the first iteration: name the one furthest from it."""
        need = forecast.now_j(self.first) + self.least * self.round_j
        slowest_s = self.least * float(self.round_s.max())
        need = need + self.waiting.of(slowest_s + forecast.now_s(self.first))
        device = int(np.argmax(np.where(self.battery < need, need, 0.0)))
        raise InfeasibleError(
            "fewer than two devices can pay for a single iteration: {device} needs {needs_j} and "
            "has {has_j}",
            code="energy",
            device=device,
            figures={"needs_j": need[device], "has_j": self.battery[device]},
            remedies=[self.remedy(float(need[device]))],
        )

    def _departures(self, t: int, forecast: Forecast) -> Forecast:
        """Let those leave who cannot pay for this iteration even as forecast."""
        while self.options.on_depletion == "leave" and self.active.sum() >= 2:
            waits_j = self.waits_j(forecast.now_s(t), self.least)
            broke = self.active & (self.affords(forecast.now_j(t), waits_j) < self.least)
            if not broke.any():
                break
            self._record(t, "depleted", broke, "the battery cannot pay for another iteration")
            self.active = self.active & ~broke
            self._keep_largest_part(t)
            if self.active.sum() >= 2:
                forecast = self.forecast(t)
        return forecast

    def _keep_largest_part(self, t: int) -> None:
        lost = cut_off(self.world.graph, self.active, self.cut)
        if lost.any():
            self._record(t, "cut-off", lost, "no path leads to the larger part of the network")
            self.active = self.active & ~lost

    def _record(self, t: int, kind: str, who: BoolArray, detail: str) -> None:
        self.events.append(Event(t + 1, kind, tuple(np.flatnonzero(who).tolist()), detail))

    def _iteration(
        self, t: int, forecast: Forecast, costs: LinkCosts
    ) -> tuple[Route | None, Ledger, IntArray, IntArray]:
        """Decide one iteration: route (or None), its price, rounds and caps."""
        nothing = np.zeros_like(self.battery)
        known = self.ground.channel_known
        if not known:  # rounds come first, from the forecast; then the channel shows itself
            rounds, cap = self._rounds(t, forecast, forecast.now_j(t), exchange=True)
        seen = costs if known and self.world.channel.fading else None
        besides = self._besides(t, costs)
        for route in forecast.routes(seen, t):
            prices = self.ground.pricer.route(route, costs)
            tree = (forecast.since, *self.ground.tree_number(t), self.snapshot)
            due = self.ground.floods(forecast.scheme) and tree != self.flooded
            if due:
                flood = self.ground.pricer.coordination(forecast.scheme, costs)
                prices = prices + flood
            for more in besides:
                prices = prices + more
            price_j, price_s = prices.exchange_j[0], float(prices.seconds[0])
            planned = self.least if known else rounds
            if not self._payable(t, forecast, price_j, price_s, planned):
                continue
            if known:
                rounds, cap = self._rounds(t, forecast, price_j, exchange=True, now_s=price_s)
            if due:
                self.flooded = tree
                self.floods.append(t)
            return route, prices, rounds, cap
        self._record(t, "outage", np.zeros_like(self.active), "no route could be paid for in time")
        if known:
            rounds, cap = self._rounds(t, forecast, nothing, exchange=False)
        return None, Ledger.of((1, len(nothing))), rounds, cap

    def _payable(
        self,
        t: int,
        forecast: Forecast,
        price_j: FloatArray,
        price_s: float,
        rounds: IntArray | int,
    ) -> bool:
        """Can everybody pay for this exchange, keep the reserve, and be in time?"""
        reserve_j, to_come = self._reserve(t, forecast)
        planned = np.where(self.active, rounds, 0)
        waits_j = self.waiting.of_iteration(planned, price_s)
        affords = self.affords(price_j, reserve_j, waits_j, coming_j=self.coming_j(t))
        enough = affords >= rounds + to_come
        if not enough[self.active].all():
            return False
        now_s, *later_s = forecast.latency_s(t)
        keep, rest_s = self.least * len(later_s), np.array(later_s)
        # What is forecast is kept as long as it can be; after that, time for the rounds to come.
        if not self.time.allows(self.least, float(now_s), rest_s, keep, self.active):
            rest_s = np.zeros(0)
        return self.time.allows(rounds, price_s, rest_s, keep, self.active)

    def _reserve(self, t: int, forecast: Forecast) -> tuple[FloatArray, IntArray]:
        """[N] joules and rounds to keep for later; none for those who will have to leave anyway."""
        # Where nobody leaves, a forecast that has become worse may leave too little: then the
        # rounds to come are kept, and exchanges that cannot be paid for are skipped.
        later_j, to_come = (
            forecast.reserve_j(t),
            self.least * (self.iterations - t - 1),
        )
        train_j = self.waits_j(0.0, to_come)
        later_j = later_j + (self.waits_j(float(forecast.latency_s(t)[1:].sum()), 0) + train_j)
        now_j = forecast.now_j(t) + self.waits_j(forecast.now_s(t), self.least)
        affords = self.affords(now_j, later_j, coming_j=self.coming_j(t))
        lasting = affords >= to_come + self.least
        leaves = self.options.on_depletion == "leave"
        short, short_j = (0, 0.0) if leaves else (to_come, train_j)
        return np.where(lasting, later_j, short_j), np.where(lasting, to_come, short)

    def _rounds(
        self,
        t: int,
        forecast: Forecast,
        price_j: FloatArray,
        *,
        exchange: bool,
        now_s: float | None = None,
    ) -> tuple[IntArray, IntArray]:
        """Rounds of this iteration: the first row of the policy over all that is left."""
        # Devices that cannot last to the end run the least each time until they leave.
        later_j = forecast.reserve_j(t)
        ahead_s = forecast.latency_s(t).copy()
        if not exchange:
            ahead_s[0] = 0.0
        elif now_s is not None:
            ahead_s[0] = now_s
        if self.waiting.counted:
            rounds, cap = rounds_and_rest(self, t, price_j + later_j, ahead_s)
            rounds = waited_for(self, rounds, price_j, float(ahead_s[0]))
            return rounds, np.where(self.active, cap[0], 0)
        total = self.affords(price_j, later_j, coming_j=self.coming_j(t))
        total, cap = in_time(self, t, total, ahead_s, self.time)
        plan = by_policy(self, t, total, cap)
        return plan[0], np.where(self.active, cap[0], 0)


@dataclass(frozen=True)
class Forecast:
    """What the planner expects while the same devices take part."""

    since: int
    scheme: Scheme
    routes: RoutesToTry
    prices: Ledger  # of iterations since..n−1, at the fade quantile

    def reserve_j(self, iteration: int) -> FloatArray:
        """[N] joules of the exchanges after an iteration (counted from 0)."""
        return total_of(self.prices.exchange_j[iteration - self.since + 1 :])

    def now_j(self, iteration: int) -> FloatArray:
        """[N] joules that the exchange of an iteration is expected to cost."""
        return np.asarray(self.prices.exchange_j[iteration - self.since])

    def now_s(self, iteration: int) -> float:
        """Seconds that the exchange of an iteration is expected to take."""
        return float(self.prices.seconds[iteration - self.since])

    def latency_s(self, iteration: int) -> FloatArray:
        """[n − iteration] seconds of this exchange and of those to come."""
        return self.prices.seconds[iteration - self.since :]


def by_policy(planner: CausalPlanner, t: int, total: IntArray, cap: IntArray) -> IntArray:
    """Rounds [rows, N] of iteration t and those to come."""
    # Devices that cannot last to the end run the least each time until they leave.
    lasting = planner.active & (total >= planner.least * (planner.iterations - t))
    rounds = np.zeros((len(cap), len(planner.active)), np.int64)
    rounds[:, planner.active] = planner.least
    if lasting.any():
        rounds[:, lasting] = allocate(
            planner.ground.policy,
            planner.iterations,
            total[lasting],
            cap[:, lasting],
            options=planner.options,
            start=t + 1,
        )
    return rounds


def in_time(
    planner: CausalPlanner, t: int, total: IntArray, ahead_s: FloatArray, time: TimeLeft
) -> tuple[IntArray, IntArray]:
    """Rounds in all [N] and caps [rows, N] for which there is time in the iterations to come."""
    # An exchange that is forecast to miss the deadline will be skipped, not cost a round.
    policy, trains = planner.ground.policy, planner.ground.trains(planner.iterations)[t:, None]
    if planner.least == 0 and time.deadline_s is not None:
        ahead_s = np.where(ahead_s > time.deadline_s, 0.0, ahead_s)
    if policy.fit is None or not time.limited:
        return total, np.maximum(time.caps(ahead_s), planner.least) * trains
    # Iterations that train are given the cap of the tightest, so that they are alike.
    cap, rows = np.maximum(time.caps(ahead_s, shares=1), 0), max(1, int(trains.sum()))
    least = cap.min(axis=0, where=trains, initial=np.iinfo(np.int64).max)
    most = np.minimum(total, rows * np.minimum(least, total // rows + 1))
    most = np.where(planner.active, np.maximum(most, 0), 0)
    fitted = policy.fit(rows, most, planner.round_s, time.training_s(ahead_s))
    return np.where(total < 0, total, fitted), least * trains


_FEW_TRIED = 1_000_000  # entries of a plan of which few limits are tried: every iteration does so
_HALVINGS = 40


def rounds_and_rest(
    planner: CausalPlanner, t: int, exchange_j: FloatArray, ahead_s: FloatArray
) -> tuple[IntArray, IntArray]:
    """Rounds [N] of an iteration and caps [rows, N] from it on, with energy to wait for them."""
    rows, least = len(ahead_s), planner.least
    low_s = least_s(ahead_s, planner.round_s[planner.active], least)
    coming_j = planner.coming_j(t)
    held_j = planner.battery if coming_j is None else planner.battery + coming_j
    purse = Purse(held_j, exchange_j, planner.round_j, planner.waiting)
    lasting = planner.active & (purse.total(low_s) >= least * rows)
    high_s = low_s
    if lasting.any():
        high_s = purse.among(lasting).longest_s(planner.time.limits, rows, least)

    def allot(limit_s: float, keep: bool) -> Tried | None:
        total = purse.total(limit_s)
        if not lasting.any() or (total[lasting] < least * rows).any():
            return None
        time = planner.time.within(limit_s) if keep else planner.time
        try:
            total, cap = in_time(planner, t, total, ahead_s, time)
            rounds = by_policy(planner, t, total, cap)
        except InfeasibleError:
            return None
        kept = keeps_total(limit_s, rounds, planner.round_s, ahead_s)
        return Tried(limit_s, rounds, cap, total) if kept else None

    found = most_rounds(
        low_s,
        high_s,
        allot,
        lambda one: longest_s(one.rounds, planner.round_s, ahead_s),
        _FEW_TRIED,
        planner.hint_s,
    )
    # Caps are those of time itself, not of a limit that was only tried.
    _, cap = in_time(planner, t, purse.total(low_s), ahead_s, planner.time)
    if found is not None:
        # What is now decided takes its part of the time; the rest is near what will be best then.
        taken_s = float((found.rounds[0] * planner.round_s).max()) + float(ahead_s[0])
        planner.hint_s = max(0.0, found.total_s - taken_s)
        return found.rounds[0], np.maximum(cap, found.rounds.max(axis=0))
    planner.hint_s = None
    # The batteries do not last: the least, for as long as they do.
    return np.where(planner.active, least, 0), cap


def waited_for(
    planner: CausalPlanner, rounds: IntArray, price_j: FloatArray, now_s: float
) -> IntArray:
    """The rounds [N] of an iteration without those for which some battery cannot wait."""

    def shortened(limit_s: float) -> IntArray:
        fitting = np.floor(limit_s / planner.round_s).astype(np.int64)
        return np.minimum(rounds, np.maximum(fitting, planner.least))

    def paid(tried: IntArray) -> bool:
        waits_j = planner.waiting.of_iteration(tried, now_s)
        return bool((planner.affords(price_j, waits_j) >= tried)[planner.active].all())

    if paid(rounds):
        return rounds
    low, high = 0.0, float((rounds * planner.round_s).max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if paid(shortened(middle)) else (low, middle)
    return shortened(low)


_WORDS = {
    "absent": "not there by devices.availability",
    "gone": "leaves for good by devices.leave",
    "depleted": "the battery cannot pay for the iteration",
    "cut-off": "no path leads to the larger part of the network",
}


def causal_planner(
    ground: Ground,
    iterations: int,
    remedy: Callable[[float], Remedy] | None = None,
    rest: Remaining | None = None,
) -> CausalPlanner:
    """The planner that goes through the iterations of a scenario one after another."""
    kind = TracedPlanner if ground.world.traces.given else CausalPlanner
    return kind(ground, iterations, remedy, rest)


class TracedPlanner(CausalPlanner):
    """A causal planner whose devices come and go, move and recharge."""

    waits = True

    def __init__(
        self,
        ground: Ground,
        iterations: int,
        remedy: Callable[[float], Remedy] | None = None,
        rest: Remaining | None = None,
    ) -> None:
        super().__init__(ground, iterations, remedy, rest)
        self.traces, self.motion = ground.world.traces, ground.world.motion
        self.elapsed_s = 0.0 if rest is None else rest.elapsed_s
        self.invited, self.kept_cut = self.active.copy(), self.cut
        self.members: BoolArray | None = None  # who holds parameters that are not old
        self.expected_s = 0.0  # of an iteration, before any is over
        self.gifts: list[tuple[int, int, int]] = []
        self.handed: list[tuple[int, int, int]] = []
        self._bestowed: tuple[tuple[int, int], ...] = ()
        self._known: dict[bytes, Forecast] = {}
        self._snapshots: list[Snapshot | None] = []
        self._stored: list[FloatArray] = []
        self._spilled: list[FloatArray] = []
        self._look(self.first)

    def walk(self) -> Timeline:
        """Plan every iteration in turn."""
        walked = super().walk()
        if not walked.active.any():
            raise InfeasibleError(
                f"fewer than two devices can take part in each of the {self.iterations} "
                "iterations; add rows to devices.availability, or raise budget.energy_j",
                code="topology",
            )
        walked = replace(
            walked,
            gifts=tuple(self.gifts),
            handed=tuple(self.handed),
            snapshots=tuple(self._snapshots),
        )
        if not self.traces.harvests:
            return walked
        stored, spilled = np.stack(self._stored), np.stack(self._spilled)
        total = self._total(self.budget_j + stored.sum(axis=0), walked)
        exchange = replace(walked.exchange, harvested_j=stored)
        return replace(walked, exchange=exchange, spilled_j=spilled, total=total)

    # Who takes part -----------------------------------------------------------------------------

    def _look(self, t: int) -> None:
        """See where devices are, and how links are."""
        snapshot = self.snapshot
        if self.motion is not None:
            snapshot = self.traces.snapshot(t, self.elapsed_s)
            self.cut = self.kept_cut | ~self.motion.exists(snapshot)
        edition = self.world.channel.edition
        if snapshot != self.snapshot or (t > self.first and edition(t) != edition(t - 1)):
            self.snapshot = snapshot
            self.forecast_costs = self.ground.forecast_at(t, snapshot=snapshot)
            self._known.clear()

    def _gathered(self, t: int, forecast: Forecast) -> Forecast:
        self._look(t)
        before, present = self.active, self.traces.present(t, self.elapsed_s)
        reasons: dict[str, BoolArray] = {}
        gone = self.traces.gone(t)
        if gone is not None:
            reasons["gone"] = self.invited & gone
            self.invited = self.invited & ~gone
        self.active = self.invited
        if present is not None:
            reasons["absent"] = self.invited & ~present
            self.active = self.invited & present
        forecast = self._settled(t, forecast, reasons)
        self._tell(t, before, reasons)
        self.expected_s = float(forecast.latency_s(t)[0]) + max(1, self.least) * float(
            self.round_s.max()
        )
        return forecast

    def _settled(self, t: int, forecast: Forecast, reasons: dict[str, BoolArray]) -> Forecast:
        """Leave out those who cannot be reached or cannot pay, until the others can go on."""
        stays = self.options.on_depletion == "refuse"
        while self.active.sum() >= 2:
            lost = cut_off(self.world.graph, self.active, self.cut, self.members)
            if lost.any():
                reasons["cut-off"] = reasons.get("cut-off", False) | lost
                self.active = self.active & ~lost
                continue
            key = self.active.tobytes()
            if key not in self._known:
                self._known[key] = self.forecast(t)
            forecast = self._known[key]
            waits_j = self.waits_j(forecast.now_s(t), self.least)
            broke = self.active & (self.affords(forecast.now_j(t), waits_j) < self.least)
            if not broke.any() or (stays and not self.traces.harvests):
                return forecast
            if stays:
                raise self._unpaid(t, broke, forecast)
            reasons["depleted"] = reasons.get("depleted", False) | broke
            self.active = self.active & ~broke
            if not self.traces.harvests:  # nothing will change that
                self.invited = self.invited & ~broke
        self.active = np.zeros_like(self.active)
        return forecast

    def _unpaid(self, t: int, broke: BoolArray, forecast: Forecast) -> InfeasibleError:
        device = int(np.argmax(broke))
        need = float(forecast.now_j(t)[device] + self.least * self.round_j[device])
        need += float(self.waits_j(forecast.now_s(t), self.least)[device])
        held = float(self.battery[device])
        # As much for every iteration to come, whatever it will harvest.
        enough = float(self.budget_j[device]) + (self.iterations - t) * need - held
        return InfeasibleError(
            "{device} cannot pay for iteration {iteration}: it needs {needs_j} and holds {has_j}, "
            "what it has harvested included",
            code="energy",
            device=device,
            figures={"iteration": t + 1, "needs_j": need, "has_j": held},
            remedies=[
                (Edit("plan.on_depletion", "leave"),),
                (Edit("budget.energy_j", at_least(enough), "raise"),),
            ],
        )

    def _tell(self, t: int, before: BoolArray, reasons: dict[str, BoolArray]) -> None:
        """Record who has left since the last iteration, and who has come back."""
        gone = before & ~self.active
        for kind, who in reasons.items():
            if (gone & who).any():
                self._record(t, kind, gone & who, _WORDS[kind])
                gone = gone & ~who
        if before.any() and not self.active.any():
            self._record(t, "waiting", gone, "fewer than two devices can take part")
        back = self.active & ~before
        if back.any():
            self._record(t, "returned", back, "takes part again")

    # The iteration ------------------------------------------------------------------------------

    def _besides(self, t: int, costs: LinkCosts) -> tuple[Ledger, ...]:
        """The gifts to those who have been away."""
        self._bestowed = ()
        if self.members is None or not (self.active & self.members).any():
            return ()
        newcomers = np.flatnonzero(self.active & ~self.members)
        if not len(newcomers):
            return ()
        graph, who = self.world.graph, np.flatnonzero(self.active)
        links = graph.edges[~self.cut & self.active[graph.edges].all(axis=1)]
        left_j = dict(zip(who.tolist(), self.battery[who].tolist(), strict=True))
        pairs = ((int(i), int(j)) for i, j in links)
        self._bestowed = givers(left_j, set(newcomers.tolist()), pairs)
        route = gift_route(self._bestowed, graph.edges, self.ground.work.model_bits)
        return (self.ground.pricer.beside(route, costs.settled),)

    def _iteration(
        self, t: int, forecast: Forecast, costs: LinkCosts
    ) -> tuple[Route | None, Ledger, IntArray, IntArray]:
        if not self.active.any():
            return self._waiting(t)
        decided = super()._iteration(t, forecast, costs)
        members = self.active if self.members is None else self.members & self.active
        if decided[0] is not None:
            given = origins(self._bestowed)
            self.handed += [(t, newcomer, giver) for newcomer, giver in self._bestowed]
            self.gifts += [(t, newcomer, giver) for newcomer, giver in sorted(given.items())]
            members = self.active
        # Without an exchange there are no gifts: who came back stays behind for now.
        self.members = members if members.any() else self.active
        return decided

    def _waiting(self, t: int) -> tuple[None, Ledger, IntArray, IntArray]:
        """An iteration that passes without anybody: as long as it may be."""
        rounds = np.zeros(len(self.battery), np.int64)
        wait_s = self.time.share_s(self.iterations - t)
        return None, Ledger.of((1, len(rounds)), seconds=wait_s), rounds, rounds

    def _payable(
        self,
        t: int,
        forecast: Forecast,
        price_j: FloatArray,
        price_s: float,
        rounds: IntArray | int,
    ) -> bool:
        """As everywhere; and what the batteries hold now pays, whatever may come."""
        waits_j = self.waiting.of_iteration(np.where(self.active, rounds, 0), price_s)
        holds = self.affords(price_j, waits_j) >= rounds
        return bool(holds[self.active].all()) and super()._payable(
            t, forecast, price_j, price_s, rounds
        )

    def _rounds(
        self,
        t: int,
        forecast: Forecast,
        price_j: FloatArray,
        *,
        exchange: bool,
        now_s: float | None = None,
    ) -> tuple[IntArray, IntArray]:
        """As everywhere, and no more than what the batteries hold now pays for."""
        rounds, cap = super()._rounds(t, forecast, price_j, exchange=exchange, now_s=now_s)
        taken_s = (forecast.now_s(t) if now_s is None else now_s) if exchange else 0.0
        waits_j = self.waiting.of_iteration(rounds, taken_s)
        return np.clip(rounds, 0, np.maximum(self.affords(price_j, waits_j), 0)), cap

    # The batteries ------------------------------------------------------------------------------

    def coming_j(self, t: int) -> FloatArray | None:
        """What each device has gathered per iteration so far, for each iteration to come."""
        # Before any is over: what it gathers now, over the shortest iteration.
        if not self.traces.harvests or self.options.harvest_forecast == "none":
            return None
        if self._stored:
            each_j = (sum(self._stored) + sum(self._spilled)) / len(self._stored)
        else:
            watts = self.traces.watts(t, self.elapsed_s)
            each_j = np.zeros_like(self.battery) if watts is None else watts * self.expected_s
        return np.asarray(each_j * (self.iterations - t - 1))

    def _passed(self, t: int, rounds: IntArray, price_s: float) -> None:
        if self.motion is not None:
            self._snapshots.append(self.snapshot)
        length_s = float((rounds * self.round_s).max()) + price_s
        gained = recharged(self.traces, self.battery, t, self.elapsed_s, length_s)
        self.elapsed_s += length_s
        if gained is None:
            return
        self.battery = gained.held_j
        self._stored.append(gained.stored_j)
        self._spilled.append(gained.spilled_j)


@dataclass(frozen=True, eq=False)
class Continuation:
    """A plan from some iteration on. Iterations count from 1."""

    ground: Ground  # the scenario, made ready
    timeline: Timeline  # every iteration of it
    notes: tuple[str, ...] = ()  # what a reader should know, one line each

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
        row, timeline = self._row(iteration), self.timeline
        if timeline.window_s is not None:
            return float(timeline.window_s[row])
        return float((timeline.rounds[row] * self.ground.world.devices.round_latency_s).max())

    def trained(self, iteration: int) -> tuple[FloatArray, FloatArray]:
        """Seconds and joules of each device's training, float64 [N] each."""
        return self.timeline.trained(self.ground.world.devices, self._row(iteration))

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
    """The rest of a plan."""
    # What was planned stays where nothing has happened to it: those who were to take part do, over
    # all their links, and can still pay for it in time. Who takes part is ``rest``'s to say,
    # whatever ``devices.leave`` has.
    ground = plan.ground.without_departures
    if not rest.first < plan.iterations:
        raise ScenarioError(
            f"the plan ends with iteration {plan.iterations}: none is left from {rest.first + 1} on"
        )
    planned = plan.timeline.from_row(rest.first)
    if _holds(planned, rest, ground):
        return Continuation(ground, planned, plan.notes)
    if ground.decided_on is not ground:  # a length that was found for another route
        ground = replace(ground, stretch=1.0)
    made = _clocked(ground.decided_on, rest, planned, plan.iterations)
    timeline = with_powers(ground, made.timeline, lambda row: made.route(made.start + row))
    return replace(made, ground=ground, timeline=timeline)


def _clocked(ground: Ground, rest: Remaining, planned: Timeline, n: int) -> Continuation:
    """The rest of a plan, made again at the clocks that the scenario asks for."""
    round_s = ground.world.devices.round_latency_s
    if ground.clock == "auto":
        limits, least = rest.limits(ground.scenario), ground.least
        round_s = pace(ground, rest.battery_j, planned.exchange, limits, least)
    continuer = Continuer(at_pace(ground, round_s), rest, n)
    timeline = continuer.timeline()
    if ground.clock != "full":
        timeline = just_in_time(ground, timeline, round_s)
    return Continuation(ground, timeline, tuple(continuer.notes))


def _holds(planned: Timeline, rest: Remaining, ground: Ground) -> bool:
    """Can the rest of a plan be carried out as it was planned?"""
    devices, rounds = ground.world.devices, planned.rounds
    if rest.cut.any() or not np.array_equal(rest.active, planned.active[0]):
        return False
    exchange_j = total_of(planned.exchange.exchange_j)
    waits_j = Waiting.at(devices).over(planned)
    total_s, seconds = rest.limits(ground.scenario).total_s, planned.exchange.seconds
    if planned.window_s is not None:
        training_j = paced_j(devices, rounds, planned.window_s).sum(axis=0)
        taken_s = float((planned.window_s + seconds).sum())
        paid = within(rest.battery_j, training_j, exchange_j, waits_j)
        return bool(paid.all() and within(math.inf if total_s is None else total_s, taken_s))
    affords = affordable(rest.battery_j, devices.round_energy_j, exchange_j, waits_j)
    if (affords < rounds.sum(axis=0)).any():
        return False
    return total_s is None or keeps_total(total_s, rounds, devices.round_latency_s, seconds)


class _PolicyError(Exception):
    """The policy does not allocate the rest of a plan, though it is paid for."""

    def __init__(self, reason: InfeasibleError | ScenarioError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Continuer:
    """Makes the rest of one plan; afterwards it has ``notes``, one line each."""

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
        """Every iteration of the rest."""
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
        """Are the exchanges and the least rounds until iteration n paid for, in time?"""
        # Where no round is compulsory, somebody still should train one, unless told otherwise.
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


def with_departures(ground: Ground, timeline: Timeline) -> tuple[Timeline, list[str]]:
    """A plan in which devices leave as ``devices.leave`` says, and what a reader should know."""
    leaves = ground.world.traces.leaves
    assert leaves is not None
    notes: list[str] = []
    for row in np.unique(leaves).tolist():
        if row >= len(timeline.rounds):
            break
        lost = timeline.active[row] & (leaves <= row)
        if lost.any():
            rest = _remaining(ground, timeline, row, lost)
            continuer = Continuer(ground, rest, len(timeline.rounds))
            timeline = _joined(ground, timeline, continuer.timeline(), row, lost)
            notes += continuer.notes
    return timeline, notes


def _remaining(ground: Ground, timeline: Timeline, row: int, lost: BoolArray) -> Remaining:
    """Who is left before a row, with what."""
    active = timeline.active[row] & ~lost
    held_j = ground.world.devices.energy_budget_j
    cut = np.zeros(len(ground.world.graph.edges), np.bool_)
    if row == 0:
        return Remaining(0, active, np.where(active, held_j, 0.0), cut)
    past = Plan(ground, _head(timeline, row))
    left_j = left_of(held_j, past.spent_j)
    return Remaining(row, active, np.where(active, left_j, 0.0), cut, past.time_s)


def _head(timeline: Timeline, row: int) -> Timeline:
    """The rows before one of them."""
    return replace(
        timeline,
        rounds=timeline.rounds[:row],
        cap=_rows(timeline.cap, timeline)[:row],
        exchange=timeline.exchange[:row],
        active=timeline.active[:row],
        exchanged=timeline.exchanged[:row],
        flooded=timeline.flooded[:row],
        schemes=tuple(pair for pair in timeline.schemes if pair[0] < max(row, 1)),
        routes=None if timeline.routes is None else timeline.routes[:row],
        events=tuple(event for event in timeline.events if event.iteration <= row),
    )


def _rows(values: NDArray[Any], timeline: Timeline) -> NDArray[Any]:
    """One row for each iteration, where one stands for all."""
    return np.broadcast_to(values, timeline.rounds.shape)


def _routes(ground: Ground, timeline: Timeline) -> tuple[Route | None, ...]:
    whole = Continuation(ground, timeline)
    return tuple(
        whole.route(whole.start + row) if sent else None
        for row, sent in enumerate(timeline.exchanged.tolist())
    )


def _joined(
    ground: Ground, timeline: Timeline, rest: Timeline, row: int, lost: BoolArray
) -> Timeline:
    """The rows before one of them, and the rest as it was made again."""
    head = _head(timeline, row)
    gone = tuple(np.flatnonzero(lost).tolist())
    both = (head, rest) if row else (rest,)
    event = Event(row + 1, "gone", gone, "leaves for good by devices.leave")
    first = both[0]
    made = replace(
        first,
        rounds=np.concatenate([part.rounds for part in both]),
        cap=np.concatenate([_rows(part.cap, part) for part in both]),
        exchange=Ledger.joined([part.exchange for part in both]),
        active=np.concatenate([part.active for part in both]),
        exchanged=np.concatenate([part.exchanged for part in both]),
        flooded=np.concatenate([part.flooded for part in both]),
        schemes=tuple({pair[0]: pair for part in both for pair in part.schemes}.values()),
        routes=tuple(route for part in both for route in _routes(ground, part)),
        events=(*(head.events if row else ()), event, *rest.events),
        first=0,
    )
    return replace(made, total=_total(ground, made))


def _total(ground: Ground, timeline: Timeline) -> NDArray[np.int64]:
    """Rounds that the batteries pay for beside all exchanges and waiting."""
    devices = ground.world.devices
    fixed = total_of(timeline.exchange.exchange_j), Waiting.at(devices).over(timeline)
    return affordable(devices.energy_budget_j, devices.round_energy_j, *fixed)
