"""The static planner (Algorithm 3, repaired): scheme, iterations and everybody's rounds at once.

Under fading, and where devices leave, it decides how many iterations there are and hands over to
the causal planner.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.scheme import Scheme
from joulemesh.data import Dataset
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.planning.budget import enough_s, require_affordable, rounds_cap, rounds_total
from joulemesh.planning.causal import CausalPlanner
from joulemesh.planning.ground import Ground
from joulemesh.planning.horizon import best_iterations, longest, zeta_limit
from joulemesh.planning.plan import Plan
from joulemesh.planning.plausible import notes_on_inputs, notes_on_outcome
from joulemesh.planning.policy import MOST_PER_ITERATION, allocate, require_countable
from joulemesh.planning.pricing import Prices
from joulemesh.planning.remedies import larger_batteries, remedies
from joulemesh.planning.timeline import Timeline
from joulemesh.scenario import Scenario
from joulemesh.theory import bounds

__all__ = ["StaticPlanner", "plan", "plan_of"]

IntArray = NDArray[np.int64]

_MOST_ENTRIES = 200_000_000  # of rounds [n, N]: 1.6 GB an array, beyond what planning should take
_FEWER_ROUNDS = "lower budget.deadline_s or budget.energy_j, or raise plan.iterations"
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


def plan_of(ground: Ground) -> Plan:
    """Plan a scenario whose sizes and world are known."""
    scenario, world = ground.scenario, ground.world
    planner = StaticPlanner(ground)
    doubts = list(notes_on_inputs(scenario, ground.work, world))
    try:
        timeline = planner.timeline()
    except InfeasibleError as refusal:
        names = ground.names
        if refusal.device is not None and names:
            refusal.add_note(f"device {refusal.device} is {names[refusal.device]!r}")
        for doubt in doubts:
            refusal.add_note(doubt)
        raise
    require_countable(timeline.rounds, _FEWER_ROUNDS)
    doubts += notes_on_outcome(scenario, world, timeline)
    return Plan(ground, timeline, (*planner.notes, *doubts))


class StaticPlanner:
    """Plans all iterations at once, or hands over to the causal planner where it must."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.scenario, self.world = ground, ground.scenario, ground.world
        self.options = self.scenario.plan
        self.least = ground.least
        require_countable(self.least, f"set plan.fixed_rounds to at most {MOST_PER_ITERATION}")
        self.costs, self.choice = ground.forecast, ground.choice  # refused here, if at all
        self.notes: list[str] = []

    def on(self, ground: Ground) -> StaticPlanner:
        """The same on other ground: to see whether a remedy helps."""
        return StaticPlanner(ground)

    def timeline(self) -> Timeline:
        """Every iteration, as it will happen."""
        n, count = self.iterations(), self.scenario.devices.count
        self.require_size(n, count)
        leaving = self.options.on_depletion == "leave"
        scheme = self.ground.ready(n)
        prices = self.prices(scheme, n)
        try:
            self.require(prices, n)
        except InfeasibleError as refusal:
            if not (leaving and refusal.constraint == "energy"):
                raise
        else:
            leaving = False
        if leaving or self.world.channel.fading:
            # A balance moves with the batteries, so that their figure has to be tried.
            moves = self.options.gossip_rounds == "balanced"
            remedy = (lambda need_j: larger_batteries(self, n * need_j, n)) if moves else None
            walker = CausalPlanner(self.ground, n, remedy)
            return walker.walk()
        return self.static(scheme, prices, n)

    def require_size(self, n: int, count: int) -> None:
        """Refuse a plan that would not fit into memory, or take hours that nobody asked for."""
        if n * count > _MOST_ENTRIES:
            raise InfeasibleError(
                f"{n} iterations of {count} devices are more than the {_MOST_ENTRIES} entries that "
                f"a plan may have; set plan.iterations to at most {_MOST_ENTRIES // count}",
                constraint="size",
            )
        wanted = self.options.iterations
        if self.world.channel.fading and isinstance(wanted, str) and n > _MOST_FADED:
            raise InfeasibleError(
                f'under fading every iteration is planned again, and plan.iterations = "{wanted}" '
                f"comes to {n} of them, which takes hours; set plan.iterations to a number",
                constraint="size",
            )

    def prices(self, scheme: Scheme, n: int) -> Prices:
        """Prices of n exchanges as forecast, coordination included."""
        return self.ground.prices(scheme, self.costs, 0, n)

    def longest(self, limit: int | None) -> int:
        """Largest n, up to a limit, that every battery pays for in time."""
        first = self.ground.ready(1)
        if self.options.gossip_rounds != "balanced" or first.exact:
            return self._longest_of(first, limit)
        # The balance depends on n, so n cannot be had from one scheme's prices.
        low, high = 0, self._longest_of(first.with_rounds(1), limit)
        while low < high:
            middle = (low + high + 1) // 2
            if self._longest_of(self.ground.ready(middle), middle) == middle:
                low = middle
            else:
                high = middle - 1
        return low

    def _longest_of(self, scheme: Scheme, limit: int | None) -> int:
        """Largest n up to a limit for one scheme; unlike exchanges are priced until one fails."""
        devices = self.world.devices
        need = self.least * devices.round_energy_j
        room = _MOST_ENTRIES // len(need) + 1  # beyond, the plan is refused for its size
        most = int(min(np.min(devices.energy_budget_j / need) + 1, limit or room, room))
        if not (scheme.random or self.ground.floods(scheme)):
            price_j = self.prices(scheme, 1).energy_j[0]
            n = longest(devices.energy_budget_j, price_j, devices.round_energy_j, self.least)
            return min(n, most)
        n = 1
        while True:
            n = min(n, most)
            prices = self.prices(scheme, n)
            slowest_s = devices.round_latency_s.max(keepdims=True)
            cap = rounds_cap(self.scenario.budget.deadline_s, prices.latency_s, slowest_s)
            late = cap[:, 0] < self.least
            paid = int(np.argmax(late)) if late.any() else n
            cost = np.cumsum(prices.energy_j, axis=0) + np.arange(1, n + 1)[:, None] * need
            broke = (cost > devices.energy_budget_j).any(axis=1)
            # Rounding may be off by one iteration; the exact sum decides.
            paid = min(paid, int(np.argmax(broke)) + 1 if broke.any() else n)
            while paid and (self.total(prices, paid) < paid * self.least).any():
                paid -= 1
            if paid < n or n == most:
                return paid
            n *= 2

    def iterations(self) -> int:
        """Number n of iterations: as given, the most that is paid for, or the best of a bound."""
        wanted = self.options.iterations
        if isinstance(wanted, int):
            return wanted
        limit = zeta_limit(self.options)
        n = self.longest(limit)
        if n < 1:
            scheme = self.ground.ready(1)
            self.require(self.prices(scheme, 1), 1)
        if wanted == "bound":
            n = self._best_of_bound(n)
        if limit is not None and n == limit:
            self._note_cut(limit)
        return n

    def _note_cut(self, limit: int) -> None:
        """Say that ζ, not a battery, ends the plan; how far it would go only if that is cheap."""
        scheme = self.ground.ready(1)
        priced = (
            scheme.random or self.ground.floods(scheme) or self.options.gossip_rounds == "balanced"
        )
        most = self.longest(limit + 1 if priced else None)
        if most > limit:
            pay = "more" if priced else f"{most:,}"
            self.notes.append(
                f"plan.zeta = {self.options.zeta:g} ends the plan after {limit} iterations, though "
                f"the batteries pay for {pay}; leave plan.zeta out, and it follows the iterations"
            )

    def _best_of_bound(self, most: int) -> int:
        constants = self.ground.constants
        if constants is None:
            raise ScenarioError(
                'plan.iterations = "bound" needs every constant of [bounds] as a number; '
                "`joulemesh estimate FILE` measures them"
            )
        rate, size = self.scenario.training.learning_rate, self.ground.work.parameters

        def value(n: int) -> float:
            scheme = self.ground.ready(n)
            try:
                rounds = self.static(scheme, self.prices(scheme, n), n).rounds
            except (InfeasibleError, ScenarioError):
                return np.inf
            gap = bounds.evaluate(rounds, constants, rate, size).theorem1_corrected
            return np.inf if gap is None else gap

        if rate * constants.smoothness > 1:
            raise ScenarioError(
                f"the bound holds for training.learning_rate at most 1/M = "
                f"{1 / constants.smoothness:.4g}, not {rate:g}; lower it, or give plan.iterations"
            )
        return best_iterations(most, value)

    def require(self, prices: Prices, n: int) -> None:
        """Refuse n iterations that a battery or the deadline does not allow."""
        devices = self.world.devices
        exchange_j, rest_j = prices.total_j(n)
        require_affordable(
            iterations=n,
            least=self.least,
            battery_j=devices.energy_budget_j,
            exchange_j=exchange_j,
            rest_j=rest_j,
            round_j=devices.round_energy_j,
            deadline_s=self.scenario.budget.deadline_s,
            exchange_s=prices.latency_s,
            round_s=devices.round_latency_s,
            longest=0,
            may_leave=self.options.on_depletion == "leave",
            remedies=lambda need_j: remedies(self, need_j, n),
        )

    def total(self, prices: Prices, n: int) -> IntArray:
        """[N] rounds that the batteries pay for beside n exchanges."""
        devices = self.world.devices
        exchange_j, rest_j = prices.total_j(n)
        return rounds_total(devices.energy_budget_j, exchange_j, devices.round_energy_j, rest_j)

    def fits(self, n: int) -> tuple[bool, str | None]:
        """Do the batteries pay for n iterations, and which deadline would they need, if another?"""
        scheme = self.ground.ready(n)
        prices, round_s = self.prices(scheme, n), self.world.devices.round_latency_s
        paid = bool((self.total(prices, n) >= n * self.least).all())
        worst_s = float(np.max(prices.latency_s))
        cap = rounds_cap(self.scenario.budget.deadline_s, worst_s, round_s)
        late = bool((cap < self.least).any())
        return paid, enough_s(worst_s, round_s, self.least) if late else None

    def static(self, scheme: Scheme, prices: Prices, n: int) -> Timeline:
        """All n iterations at once, for a channel that does not change."""
        devices = self.world.devices
        total = self.total(prices, n)
        cap = rounds_cap(self.scenario.budget.deadline_s, prices.latency_s, devices.round_latency_s)
        rounds = allocate(
            self.ground.policy,
            n,
            total,
            cap[0] if len(cap) == 1 else cap,
            options=self.options,
        )
        if self.ground.policy.zeros and (rounds < 1).any():
            t, device = np.argwhere(rounds < 1)[0]
            raise ScenarioError(
                f'plan.rounds = "{self.options.rounds}" gives device {device} no round in '
                f"iteration {t + 1} (it does so in {int((rounds < 1).sum())} places); use "
                '"theorem4"'
            )
        return Timeline(
            scheme=scheme,
            route=scheme.route(self.costs),
            rounds=rounds,
            cap=cap,
            total=total,
            exchange_j=prices.energy_j,
            exchange_s=np.broadcast_to(prices.latency_s, (n,)),
            active=np.broadcast_to(np.True_, rounds.shape),
            exchanged=np.broadcast_to(np.True_, (n,)),
            flooded=self.ground.flooded(scheme, 0, n),
            schemes=((0, scheme),),
        )
