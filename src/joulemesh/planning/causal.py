"""Planning as time goes by: block fading, and devices that leave.

Iteration t uses the gains known by then, and for the future the link energy at a quantile
(`plan.fade_quantile`): of the fading model, or of what a trace has shown so far. What an exchange
to come is forecast to cost is kept in reserve, so an exchange happens only if everybody can pay for
it out of what is not reserved and still meets the deadline; otherwise it is an outage: skipped,
nothing charged, recorded. The total time, where one is given, is treated like a battery: seconds of
exchanges to come are kept in reserve.
"""

from __future__ import annotations

__all__ = ["CausalPlanner"]

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import RoutesToTry, Scheme
from joulemesh.errors import Edit, InfeasibleError, Remedy, ScenarioError
from joulemesh.ledger import Ledger, total_of
from joulemesh.planning.budget import at_least
from joulemesh.planning.clock import TimeLeft, keeps_total, longest_s
from joulemesh.planning.ground import Ground
from joulemesh.planning.policy import allocate
from joulemesh.planning.remaining import Remaining, cut_off
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.waiting import Purse, Tried, Waiting, least_s, most_rounds
from joulemesh.tolerance import affordable, left_of
from joulemesh.world.links import LinkCosts
from joulemesh.world.motion import Snapshot

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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
        """[N] joules and rounds to keep for later; none for those who will have to leave anyway.

        Where nobody leaves, a forecast that has become worse may leave too little: then the rounds
        to come are kept, and exchanges that cannot be paid for are skipped.
        """
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
        """This iteration's rounds: the policy over all that is left, of which the first row counts.

        Devices that cannot last to the end run the least each time until they leave.
        """
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
    """Rounds [rows, N] of iteration t and those to come.

    Devices that cannot last to the end run the least each time until they leave.

    Args:
        planner: with who takes part.
        t: the iteration, from 0.
        total: [N] rounds in all that batteries pay for in time.
        cap: [rows, N].
    """
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
    """Rounds in all [N] and caps [rows, N] for which there is time in the iterations to come.

    An exchange that is forecast to miss the deadline will be skipped, not cost a round.

    Args:
        planner: with who takes part.
        t: the iteration, from 0.
        total: [N] rounds in all that the batteries pay for.
        ahead_s: [rows] seconds of the exchanges.
        time: that is left.
    """
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
    """Rounds [N] of an iteration and caps [rows, N] of those to come, with energy to wait for them.

    Args:
        planner: with what is left, and who takes part.
        t: the iteration, from 0.
        exchange_j: [N] joules of its exchange and of those to come.
        ahead_s: [rows] their seconds.
    """
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
    """The rounds [N] of an iteration without those for which some battery cannot wait.

    Args:
        planner: with what is left, and who takes part.
        rounds: [N].
        price_j: [N] joules of the exchange.
        now_s: its seconds.
    """

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
