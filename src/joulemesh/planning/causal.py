"""Planning as time goes by: block fading, and devices that leave.

Iteration t uses the gains known by then, and for the future the link energy at a quantile
(`plan.fade_quantile`): of the fading model, or of what a trace has shown so far. What an exchange
to come is forecast to cost is kept in reserve, so an exchange happens only if everybody can pay for
it out of what is not reserved and still meets the deadline; otherwise it is an outage: skipped,
nothing charged, recorded. The total time, where one is given, is treated like a battery: seconds of
exchanges to come are kept in reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import Edit, InfeasibleError, Remedy, ScenarioError
from joulemesh.planning.ahead import by_policy, in_time
from joulemesh.planning.budget import at_least
from joulemesh.planning.clock import TimeLeft
from joulemesh.planning.exact import exact_sum, most_affordable, remainder, two_product
from joulemesh.planning.forecast import Forecast
from joulemesh.planning.ground import Ground
from joulemesh.planning.pricing import Prices
from joulemesh.planning.remaining import Remaining, cut_off
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.waited import rounds_and_rest, waited_for
from joulemesh.planning.waiting import Waiting
from joulemesh.units import energy
from joulemesh.world.links import LinkCosts
from joulemesh.world.motion import Snapshot

__all__ = ["CausalPlanner"]

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
        self.owed = np.zeros_like(self.battery)  # what rounding leaves out of what was spent
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
        spent, heard, seconds = np.zeros((n, count)), np.zeros((n, count)), np.zeros(n)
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
            price_j, price_s = price.energy_j[0], float(price.latency_s[0])
            routes.append(route)
            active[row], exchanged[row] = self.active, route is not None and bool(len(route.edge))
            spent[row], seconds[row] = price_j, price_s
            heard[row] = 0.0 if price.receive_j is None else price.receive_j[0]
            self._pay(price_j, rounds[row], price_s)
            self.time.pay(rounds[row], price_s)
            self._passed(t, rounds[row], price_s)
        if n == 0:
            self._refuse_the_first(whole)
        exchange_j, rest_j = exact_sum(spent[:n])
        made = Timeline(
            scheme=schemes[self.first],
            route=schemes[self.first].route(first_costs, self.first),
            rounds=rounds[:n],
            cap=cap[:n],
            total=np.zeros(count, np.int64),
            exchange_j=spent[:n],
            receive_j=heard[:n] if heard.any() else None,
            exchange_s=seconds[:n],
            active=active[:n],
            exchanged=exchanged[:n],
            flooded=np.isin(self.first + np.arange(n), self.floods),
            schemes=tuple(schemes.items()),
            routes=tuple(routes),
            events=tuple(self.events),
            first=self.first,
        )
        fixed = (exchange_j, rest_j, *self.waiting.over(made))
        return replace(made, total=most_affordable(self.budget_j, self.round_j, *fixed))

    def _pay(self, price_j: FloatArray, rounds: IntArray, price_s: float) -> None:
        training_j, rest_j = two_product(rounds, self.round_j)
        waits_j = self._only_active(self.waiting.of_iteration(rounds, price_s))
        self.battery, self.owed = remainder(
            self.battery, self.owed + rest_j, price_j, training_j, *waits_j
        )

    def _only_active(self, waits_j: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
        return tuple(np.where(self.active, part, 0.0) for part in waits_j)

    def waits_j(self, exchange_s: float, rounds: int, often: int = 1) -> tuple[FloatArray, ...]:
        """Joules [N] at rest while exchanges take so long, and the slowest trains so often."""
        slowest_s = float(self.round_s[self.active].max()) if self.active.any() else 0.0
        return self.waiting.of(exchange_s, often * rounds * slowest_s)

    def affords(self, *fixed_j: FloatArray, coming_j: FloatArray | None = None) -> IntArray:
        """[N] rounds that the batteries pay for beside some joules [N], with what may come."""
        held_j = self.battery if coming_j is None else self.battery + coming_j
        return most_affordable(held_j, self.round_j, *fixed_j, self.owed)

    # Where nothing but the channel changes ------------------------------------------------------

    waits = False  # does the plan go on where fewer than two devices are there?

    def _gathered(self, t: int, forecast: Forecast) -> Forecast:
        """Decide who takes part in an iteration; the forecast among them."""
        return self._departures(t, self._renewed(t, forecast))

    def coming_j(self, t: int) -> FloatArray | None:
        """[N] joules that batteries are expected to gain after an iteration; None for nothing."""
        return None

    def _besides(self, t: int, costs: LinkCosts) -> tuple[Prices, ...]:
        """What is paid for in an iteration beside its exchange and training."""
        return ()

    def _passed(self, t: int, rounds: IntArray, price_s: float) -> None:
        """An iteration is over."""

    def _refuse_the_first(self, forecast: Forecast) -> None:
        """Nobody is left to exchange with in the first iteration: name the one furthest from it."""
        need = forecast.now_j(self.first) + self.least * self.round_j
        slowest_s = self.least * float(self.round_s.max())
        need = need + self.waiting.rounded(slowest_s + forecast.now_s(self.first))
        device = int(np.argmax(np.where(self.battery < need, need, 0.0)))
        raise InfeasibleError(
            f"fewer than two devices can pay for a single iteration: device {device} needs "
            f"{energy(need[device], digits=6)} and has {energy(self.battery[device], digits=6)}",
            remedies=[self.remedy(float(need[device]))],
            device=device,
            constraint="energy",
        )

    def _departures(self, t: int, forecast: Forecast) -> Forecast:
        """Let those leave who cannot pay for this iteration even as forecast."""
        while self.options.on_depletion == "leave" and self.active.sum() >= 2:
            waits_j = self.waits_j(forecast.now_s(t), self.least)
            broke = self.active & (self.affords(forecast.now_j(t), *waits_j) < self.least)
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
    ) -> tuple[Route | None, Prices, IntArray, IntArray]:
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
                prices = prices.with_floods(flood, np.ones(1, np.bool_))
            for more in besides:
                prices = prices.with_floods(more, np.ones(1, np.bool_))
            price_j, price_s = prices.energy_j[0], float(prices.latency_s[0])
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
        return None, Prices(nothing[None], np.zeros(1)), rounds, cap

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
        fixed = (price_j, reserve_j, *waits_j)
        enough = self.affords(*fixed, coming_j=self.coming_j(t)) >= rounds + to_come
        if not enough[self.active].all():
            return False
        now_s, *later_s = forecast.latency_s(t, self.iterations)
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
            forecast.reserve_j(t, self.iterations),
            self.least * (self.iterations - t - 1),
        )
        train_j = sum(self.waits_j(0.0, to_come), np.zeros_like(later_j))
        later_j = later_j + sum(self.waits_j(forecast.later_s(t, self.iterations), 0), train_j)
        now_j = (forecast.now_j(t), *self.waits_j(forecast.now_s(t), self.least))
        affords = self.affords(*now_j, later_j, coming_j=self.coming_j(t))
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
        later_j = forecast.reserve_j(t, self.iterations)
        ahead_s = forecast.latency_s(t, self.iterations).copy()
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
