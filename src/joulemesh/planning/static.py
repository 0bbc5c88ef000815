"""The static planner (Algorithm 3, repaired): scheme, iterations and everybody's rounds at once.

Under fading, and where devices leave, it decides how many iterations there are and hands over to
the causal planner.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.scheme import Scheme
from joulemesh.countable import MOST_PER_ITERATION, require_countable
from joulemesh.data import Dataset
from joulemesh.errors import (
    Edit,
    InfeasibleError,
    JoulemeshError,
    ScenarioError,
    named_refusals,
)
from joulemesh.ledger import Ledger, total_of
from joulemesh.planning.allotment import Allotment
from joulemesh.planning.budget import (
    Demand,
    missing_time,
    require_affordable,
)
from joulemesh.planning.clock import TimeLimits
from joulemesh.planning.ground import Ground
from joulemesh.planning.iterations import MOST_ENTRIES, Iterations
from joulemesh.planning.plan import Plan
from joulemesh.planning.plausible import ask_first, notes_on_inputs, notes_on_outcome, questions
from joulemesh.planning.remedies import (
    FirstRound,
    fewer_iterations,
    larger_batteries,
    prove,
    remedies,
    require_somebody,
)
from joulemesh.planning.rounds import stand_in
from joulemesh.planning.timeline import Timeline
from joulemesh.planning.waiting import Purse, Waiting, least_s
from joulemesh.scenario import Scenario

__all__ = ["StaticPlanner", "plan", "plan_of"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FEWER_ROUNDS = (
    "lower budget.deadline_s, budget.total_s or budget.energy_j, or raise plan.iterations"
)
_MOST_FADED = 10_000  # iterations under fading, planned one after another, unless a number is given


def plan(
    scenario: Scenario,
    *,
    parameters: int | None = None,
    data: Dataset | None = None,
) -> Plan:
    """Plan a scenario: choose the scheme, the number of iterations and everybody's rounds.

    Args:
        scenario: what is asked.
        parameters: size of the user's own model, in place of the scenario's.
        data: the user's own, in place of the scenario's data set (needed only when a round is an
            epoch).

    Returns:
        The plan; no battery and no deadline is overrun in it.

    Raises:
        InfeasibleError: some device cannot meet a constraint; the message names the remedy.
        ScenarioError: the scenario contradicts itself.

    >>> import joulemesh
    >>> joulemesh.plan(joulemesh.Scenario(plan={"iterations": 30})).iterations
    30
    """
    return plan_of(Ground.of(scenario, parameters, data))


def plan_of(ground: Ground, *, proof: bool = True) -> Plan:
    """Plan a scenario whose sizes and world are known.

    Args:
        ground: the scenario, made ready.
        proof: try what a refusal advises before it is offered; where many plans are made, refusals
            are not worth that.
    """
    with named_refusals(lambda: ground.names):
        try:
            return _planned(ground)
        except JoulemeshError as refusal:
            if proof:
                prove(refusal, ground, _planned)
            raise


def _planned(ground: Ground) -> Plan:
    scenario, world = ground.scenario, ground.world
    planner = StaticPlanner(ground)
    doubts = list(notes_on_inputs(scenario, ground.work, world))
    try:
        timeline = planner.timeline()
        if world.traces.leaves is not None and not world.changes:
            from joulemesh.planning.leaving import with_departures  # few plans need it

            timeline, more = with_departures(ground, timeline)
            planner.notes += more
    except InfeasibleError as refusal:
        ask_first(refusal, scenario)
        asked = {question.text for question in questions(scenario)}
        for doubt in doubts:
            if doubt not in asked:
                refusal.add_note(doubt)
        raise
    require_countable(timeline.rounds, _FEWER_ROUNDS)
    doubts += notes_on_outcome(scenario, world, timeline, ground.names)
    return Plan(ground, timeline, (*planner.notes, *doubts))


class StaticPlanner:
    """Plans all iterations at once, or hands over to the causal planner where it must."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.scenario, self.world = ground, ground.scenario, ground.world
        self.options = self.scenario.plan
        self.least, self.limits = ground.least, TimeLimits.of(self.scenario)
        require_countable(self.least, f"set plan.fixed_rounds to at most {MOST_PER_ITERATION}")
        self.costs, self.choice = ground.forecast, ground.choice  # refused here, if at all
        self.notes: list[str] = []

    def on(self, ground: Ground) -> StaticPlanner:
        """The same on other ground: to see whether a remedy helps."""
        return StaticPlanner(ground)

    def timeline(self) -> Timeline:
        """Every iteration, as it will happen."""
        n, count = Iterations(self).chosen(), self.scenario.devices.count
        self.require_size(n, count)
        leaving = self.options.on_depletion == "leave"
        scheme = self.ground.ready(n)
        prices = self.prices(scheme, n)
        try:
            self.require(prices, n)
        except InfeasibleError as refusal:
            # What batteries will gain is not known in advance: each iteration shows who can pay.
            later = leaving or self.world.traces.harvests
            if not (later and refusal.code in ("energy", "idle")):
                raise
        else:
            leaving = False
        if leaving or self.world.changes:
            from joulemesh.planning.traced import causal_planner  # few plans need it

            # A balance moves with the batteries, and exchanges without a round are no plan: then
            # the figure for a battery has to be tried.
            moves = self.options.gossip_rounds == "balanced" or self.least == 0
            remedy = (lambda need_j: larger_batteries(self, n * need_j, n)) if moves else None
            walked = causal_planner(self.ground, n, remedy).walk()
            if not walked.rounds.any():
                self.require(prices, n)
            return walked
        return self.static(scheme, prices, n)

    def require_size(self, n: int, count: int) -> None:
        """Refuse a plan that would not fit into memory, or take hours that nobody asked for."""
        if n * count > MOST_ENTRIES:
            raise InfeasibleError(
                "{iterations:iteration} of {count:device} are more than the {most} entries that a "
                "plan may have",
                code="size",
                figures={"iterations": n, "count": count, "most": MOST_ENTRIES},
                remedies=[(Edit("plan.iterations", MOST_ENTRIES // count, "lower"),)],
            )
        wanted = self.options.iterations
        if self.world.changes and isinstance(wanted, str) and n > _MOST_FADED:
            what = "under fading" if self.world.channel.fading else "with traces"
            raise InfeasibleError(
                f'{what} every iteration is planned again, and plan.iterations = "{wanted}" comes '
                "to {iterations} of them, which takes hours; set plan.iterations to a number",
                code="size",
                figures={"iterations": n},
                field="plan.iterations",
            )

    def prices(self, scheme: Scheme, n: int) -> Ledger:
        """Prices of n exchanges as forecast, coordination included."""
        return self.ground.prices(scheme, self.costs, 0, n)

    def longest(self, limit: int | None) -> int:
        """Largest n, up to a limit, that every battery pays for in time."""
        return Iterations(self).longest(limit)

    def require(self, prices: Ledger, n: int) -> None:
        """Refuse n iterations that a battery or the time does not allow."""
        if self.least == 0:
            require_somebody(self, prices, n)
            return
        demand = self.demand(prices, n)
        require_affordable(
            replace(demand, deadline_s=self.limits.deadline_s, total_s=self.limits.total_s),
            may_leave=self.options.on_depletion == "leave",
            remedies=lambda need_j: remedies(self, need_j, n),
            shorter=lambda: fewer_iterations(self, n),
        )

    def demand(self, prices: Ledger, n: int) -> Demand:
        """What n iterations of the least rounds ask of the batteries."""
        purse = self.purse(prices, n)
        rest_s = self.least_s(prices, n)
        return Demand(
            iterations=n,
            least=self.least,
            battery_j=purse.battery_j,
            exchange_j=purse.exchange_j,
            round_j=purse.round_j,
            exchange_s=prices.seconds,
            round_s=purse.waiting.round_s,
            idle_s=rest_s,
            idle_j=purse.waiting.of(rest_s) if purse.waiting.counted else None,
        )

    def purse(self, prices: Ledger, n: int) -> Purse:
        """The batteries, and what n exchanges and waiting take from them."""
        devices, exchange_j = self.world.devices, total_of(prices[:n].exchange_j)
        held_j, round_j = devices.energy_budget_j, devices.round_energy_j
        return Purse(held_j, exchange_j, round_j, Waiting.at(devices))

    def least_s(self, prices: Ledger, n: int) -> float:
        """Seconds of n iterations with the least rounds."""
        return least_s(prices.seconds[:n], self.world.devices.round_latency_s, self.least)

    def total(self, prices: Ledger, n: int) -> IntArray:
        """[N] rounds that the batteries pay for beside n exchanges, if iterations are short."""
        return self.purse(prices, n).total(self.least_s(prices, n))

    def fits(self, n: int) -> tuple[bool, list[Edit]]:
        """Do the batteries pay for n iterations, and which limits of time have to be raised?"""
        scheme = self.ground.ready(n)
        prices, round_s = self.prices(scheme, n), self.world.devices.round_latency_s
        paid = bool((self.total(prices, n) >= n * self.least).all())
        if self.least == 0:
            first = FirstRound.of(self, prices, n)
            return paid and "energy" not in first.lacks, first.in_time
        limits = (self.limits.deadline_s, self.limits.total_s)
        return paid, missing_time(self.least, *limits, prices.seconds, round_s)

    def static(self, scheme: Scheme, prices: Ledger, n: int) -> Timeline:
        """All n iterations at once, for a channel that does not change."""
        allotment = Allotment(
            self.ground, self.ground.policy, n, self.world.devices.round_latency_s, self.limits
        )
        found = allotment.paid(self.purse(prices, n), prices.seconds)
        rounds, cap, total = found.rounds, found.cap, found.total
        if self.ground.policy.zeros and self.least and (rounds < 1).any():
            t, device = np.argwhere(rounds < 1)[0]
            instead = stand_in(self.ground.policy, self.options)
            raise ScenarioError(
                f'plan.rounds = "{self.options.rounds}" gives {{device}} no round in iteration '
                "{iteration} (it does so in {count:place})",
                device=int(device),
                figures={"iteration": t + 1, "count": int((rounds < 1).sum())},
                remedies=[(Edit("plan.rounds", name),) for name in (instead, "spread")],
            )
        return Timeline(
            scheme=scheme,
            route=scheme.route(self.costs),
            rounds=rounds,
            cap=cap,
            total=total,
            exchange=prices,
            active=np.broadcast_to(np.True_, rounds.shape),
            exchanged=~scheme.silent(0, n),
            flooded=self.ground.flooded(scheme, 0, n),
            schemes=((0, scheme),),
        )
