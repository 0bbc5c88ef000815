"""The plan (Algorithm 3, repaired): scheme, iterations, rounds, and a ledger that adds up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.data import Dataset
from joulemesh.data.chosen import device_names
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.planning.budget import (
    at_least,
    enough_s,
    require_affordable,
    rounds_cap,
    rounds_total,
)
from joulemesh.planning.causal import CausalPlanner
from joulemesh.planning.exact import two_product
from joulemesh.planning.figures import Figure, figures
from joulemesh.planning.ground import Ground
from joulemesh.planning.history import Event, History
from joulemesh.planning.horizon import best_iterations, longest, zeta_limit
from joulemesh.planning.plausible import notes_on_inputs, notes_on_outcome
from joulemesh.planning.policy import MOST_PER_ITERATION, allocate, require_countable
from joulemesh.planning.pricing import Prices
from joulemesh.planning.workload import Workload
from joulemesh.scenario import Scenario
from joulemesh.theory import bounds
from joulemesh.units import duration, energy
from joulemesh.world import World

if TYPE_CHECKING:
    from joulemesh.planning.advice import Answer

__all__ = ["Plan", "plan"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


_MOST_ENTRIES = 200_000_000  # of rounds [n, N]: 1.6 GB an array, beyond what planning should take
_MOST_TRIED = 200_000  # entries of a plan that is made only to see whether a remedy helps
_RAISE, _MOST_RAISED = 1.02, 400  # steps in which a battery is raised until it pays
_FEWER_ROUNDS = "lower budget.deadline_s or budget.energy_j, or raise plan.iterations"
_MOST_FADED = 10_000  # iterations under fading, planned one after another, unless a number is given


@dataclass(frozen=True)
class Plan:
    """Who trains how much and when, and what it costs.

    Attributes:
        ground: what was asked, its sizes and its world.
        history: every iteration, as it will happen.
        notes: what a reader of the plan should know, one line each.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
    >>> made.rounds.shape == (made.iterations, 20)
    True
    >>> bool((made.margin_j >= 0).all() and (made.margin_s >= 0).all())
    True
    """

    ground: Ground
    history: History
    notes: tuple[str, ...] = ()

    @property
    def scenario(self) -> Scenario:
        """What was asked."""
        return self.ground.scenario

    @property
    def world(self) -> World:
        """Devices, graph and channel."""
        return self.ground.world

    @property
    def work(self) -> Workload:
        """Sizes of the model and of a round."""
        return self.ground.work

    @property
    def scheme(self) -> str:
        """Name of the aggregation scheme."""
        return self.history.scheme.name

    @property
    def reason(self) -> str:
        """Why this scheme."""
        return self.history.scheme.reason

    @property
    def edges(self) -> IntArray:
        """int64 [E', 2]: the links that the scheme uses (under fading, those of the forecast)."""
        return self.history.route.edges

    @property
    def iterations(self) -> int:
        """Number n of iterations."""
        return len(self.history.rounds)

    @property
    def rounds(self) -> IntArray:
        """int64 [n, N]: local rounds; 0 for a device that has left."""
        return self.history.rounds

    @property
    def compute_j(self) -> FloatArray:
        """float64 [n, N]: joules of local training."""
        return self.rounds * self.world.devices.round_energy_j

    @property
    def exchange_j(self) -> FloatArray:
        """float64 [n, N] or [1, N]: joules of the exchanges."""
        return self.history.exchange_j

    @property
    def exchange_s(self) -> FloatArray:
        """float64 [n]: seconds of the exchanges."""
        return self.history.exchange_s

    @cached_property
    def latency_s(self) -> FloatArray:
        """float64 [n]: seconds of each iteration, training and exchange."""
        round_s = self.world.devices.round_latency_s
        slowest = np.array([(rounds * round_s).max() for rounds in self.rounds])
        return np.asarray(slowest + self.exchange_s)

    @cached_property
    def iteration_j(self) -> FloatArray:
        """float64 [n]: joules of each iteration, training and exchange, of all devices."""
        round_j = self.world.devices.round_energy_j
        training = np.array([rounds @ round_j for rounds in self.rounds])
        return np.asarray(training + self.exchange_j.sum(axis=1))

    @property
    def energy_budget_j(self) -> FloatArray:
        """float64 [N]: the batteries."""
        return self.world.devices.energy_budget_j

    @property
    def deadline_s(self) -> float:
        """Seconds allowed to each iteration."""
        return self.scenario.budget.deadline_s

    @cached_property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges."""
        repeat = self.iterations if len(self.exchange_j) == 1 else 1
        return np.asarray(self.exchange_j.sum(axis=0) * repeat)

    @cached_property
    def compute_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on training."""
        return np.asarray(self.rounds.sum(axis=0) * self.world.devices.round_energy_j)

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all.

        Exactly they are no more than the battery. Where adding them up with rounding would say
        otherwise, their sum is rounded only once.
        """
        spent_j = self.compute_total_j + self.exchange_total_j
        repeat = self.iterations if len(self.exchange_j) == 1 else 1
        for device in np.flatnonzero(spent_j > self.energy_budget_j):
            round_j = self.world.devices.round_energy_j[device]
            training = two_product(self.rounds[:, device].sum(), round_j)
            each = [two_product(repeat, price) for price in self.exchange_j[:, device]]
            spent_j[device] = math.fsum(float(part) for pair in (training, *each) for part in pair)
        return spent_j

    @property
    def margin_j(self) -> FloatArray:
        """float64 [N]: what is left in the batteries."""
        return self.energy_budget_j - self.spent_j

    @property
    def margin_s(self) -> FloatArray:
        """float64 [n]: time to spare in each iteration."""
        return self.deadline_s - self.latency_s

    @property
    def active(self) -> BoolArray:
        """bool [n, N]: who takes part."""
        return self.history.active

    @property
    def exchanged(self) -> BoolArray:
        """bool [n]: False where the exchange is skipped."""
        return self.history.exchanged

    @property
    def events(self) -> tuple[Event, ...]:
        """Outages and departures."""
        return self.history.events

    @property
    def binding(self) -> NDArray[np.str_]:
        """str [N]: what keeps a device from one more round.

        ``"energy"``: its battery; ``"deadline"``: every iteration is full; ``"policy"``: neither;
        ``"left"``: it left before the end.
        """
        return np.array(["energy", "policy", "deadline", "left"])[self._bound]

    @cached_property
    def _bound(self) -> NDArray[np.int8]:
        """int8 [N]: which of these it is; the words take 32 bytes each."""
        one_more = self.history.total > self.rounds.sum(axis=0)
        full = (self.rounds >= self.history.cap).all(axis=0)
        kind = one_more.astype(np.int8) + (one_more & full)
        return np.where(self.active[-1], kind, np.int8(3))

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The figures that decide the plan, each with its value and where it comes from.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario(budget={"deadline_s": 0.05}))
        >>> print(*(f"{one.name}: {one.origin}" for one in made.figures[:2]), sep=", ")
        budget.deadline_s: given, budget.energy_j: assumed
        """
        return figures(self.scenario)

    @cached_property
    def answer(self) -> Answer:
        """What binds, what is left over, and which one change would help most; see `advice`."""
        from joulemesh.planning.advice import advice

        return advice(self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The devices' names, from the column ``name`` of their table; empty without one."""
        return _names(self.scenario)

    def name(self, device: int) -> str:
        """How a device is called in a sentence.

        >>> import joulemesh
        >>> joulemesh.plan(joulemesh.Scenario.preset("default")).name(3)
        'device 3'
        """
        return f"device {device} ({self.names[device]})" if self.names else f"device {device}"

    def route(self, iteration: int) -> Route | None:
        """What is sent in an iteration (1..n); None where the exchange is skipped."""
        t = self._place(iteration)
        if self.history.routes is not None:
            return self.history.routes[t]
        if not self.history.scheme.random:
            return self.history.route
        return self.scheme_at(iteration).route(self.ground.costs(t), t)

    def _place(self, iteration: int) -> int:
        """The row of an iteration in the arrays."""
        if not 1 <= iteration <= self.iterations:
            raise ScenarioError(f"iteration {iteration} is not one of 1..{self.iterations}")
        return iteration - 1

    def scheme_at(self, iteration: int) -> Scheme:
        """The scheme of an iteration (1..n)."""
        t = self._place(iteration)
        return [scheme for since, scheme in self.history.schemes if since <= t][-1]

    @cached_property
    def bounds(self) -> dict[str, Any] | None:
        """Theorems 1 and 2 and Corollary 1, printed and corrected; None without constants."""
        constants = _constants(self.scenario)
        if constants is None:
            return None
        return bounds.evaluate(
            self.rounds, constants, self.scenario.training.learning_rate, self.work.parameters
        ).to_dict()

    def to_json(self) -> str:
        """Everything, as JSON; arrays of more than a million entries are left to ``save``."""
        from joulemesh.planning.export import plan_json

        return plan_json(self)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file; its suffix says how.

        Args:
            path: ends in ``.npz`` (all arrays), ``.json`` (what `to_json` gives) or ``.csv`` (one
                row for each iteration and device: rounds, joules, and whether it is active).
        """
        from joulemesh.planning.export import save_plan

        save_plan(self, path)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote, made again from the scenario in it.

        Raises:
            ScenarioError: the text is no plan, or its scenario no longer gives the same one.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
        >>> bool((Plan.from_json(made.to_json()).rounds == made.rounds).all())
        True
        """
        from joulemesh.planning.export import plan_from_json

        return plan_from_json(text)

    def frame(self) -> Any:
        """One row per device, as a pandas DataFrame: place, battery, what it went on, rounds.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
        >>> int(made.frame()["rounds"].sum()) == int(made.rounds.sum())
        True
        """
        from joulemesh.planning.export import plan_frame

        return plan_frame(self)

    def graph(self) -> Any:
        """Devices and links, as a ``networkx.Graph``.

        Nodes have ``pos`` (metres), ``energy_budget_j``, ``spent_j``, ``rounds`` and ``binding``.
        Edges have ``gain``, ``rate_bps`` (the slower way), ``energy_j_per_bit`` (mean of both),
        ``weight`` (sum of both: the tree's) and ``used`` by the scheme; under fading they are
        priced as forecast. `Scenario.with_graph` takes it back.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
        >>> sum(used for _, _, used in made.graph().edges(data="used")) == len(made.edges)
        True
        """
        from joulemesh.planning.export import plan_graph

        return plan_graph(self)

    def __repr__(self) -> str:
        """In one line; `frame` and `to_json` have the figures."""
        n, count = self.rounds.shape
        spent, held = energy(float(self.spent_j.sum())), energy(float(self.energy_budget_j.sum()))
        return (
            f"Plan({self.scheme}, {n:,} iterations, {count:,} devices, "
            f"{int(self.rounds.sum()):,} rounds, {spent} of {held}, "
            f"{duration(float(self.latency_s.sum()))})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import joulemesh  # the front door knows the views; this room does not

        page: str = joulemesh.notebook_html(self)
        return page


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
    planner = _Planner(ground)
    doubts = list(notes_on_inputs(scenario, ground.work, world))
    try:
        history = planner.history()
    except InfeasibleError as refusal:
        names = _names(scenario)
        if refusal.device is not None and names:
            refusal.add_note(f"device {refusal.device} is {names[refusal.device]!r}")
        for doubt in doubts:
            refusal.add_note(doubt)
        raise
    require_countable(history.rounds, _FEWER_ROUNDS)
    doubts += notes_on_outcome(scenario, world, history)
    return Plan(ground, history, (*planner.notes, *doubts))


def _names(scenario: Scenario) -> tuple[str, ...]:
    """Names in the device table, if each device has one of its own."""
    try:
        return device_names(scenario)
    except ScenarioError:
        return ()


class _Planner:
    """The static plan, and the way to the causal one."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.scenario, self.world = ground, ground.scenario, ground.world
        self.options = self.scenario.plan
        self.least = ground.least
        require_countable(self.least, f"set plan.fixed_rounds to at most {MOST_PER_ITERATION}")
        self.costs, self.choice = ground.forecast, ground.choice  # refused here, if at all
        self.notes: list[str] = []

    def history(self) -> History:
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
            remedy = (lambda need_j: self._larger_batteries(n * need_j, n)) if moves else None
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
        constants = _constants(self.scenario)
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
            remedies=lambda need_j: self.remedies(need_j, n),
        )

    def total(self, prices: Prices, n: int) -> IntArray:
        """[N] rounds that the batteries pay for beside n exchanges."""
        devices = self.world.devices
        exchange_j, rest_j = prices.total_j(n)
        return rounds_total(devices.energy_budget_j, exchange_j, devices.round_energy_j, rest_j)

    # What a refusal advises ---------------------------------------------------------------------

    def remedies(self, need_j: float, n: int) -> list[str]:
        """What to do about batteries that cannot pay; every one has been tried.

        Args:
            need_j: what a battery would have to hold if exchanges cost no more then.
            n: number of iterations.
        """
        texts = [self._larger_batteries(need_j, n)]
        most = self.longest(zeta_limit(self.options)) if n > 1 else 0
        if most and self._fits(most) == (True, None):
            texts.append(f"set plan.iterations to at most {most}")
        if self.options.on_depletion != "leave" and n * self.scenario.devices.count <= _MOST_TRIED:
            leaving = self.options.model_copy(update={"on_depletion": "leave"})
            asked = self.scenario.model_copy(update={"plan": leaving})
            other = _Planner(replace(self.ground, scenario=asked))
            try:
                other.history()
            except (InfeasibleError, ScenarioError):
                return texts
            texts.append('set plan.on_depletion = "leave"')
        return texts

    def _larger_batteries(self, need_j: float, n: int) -> str:
        """Batteries that pay, and the deadline that they need.

        Larger batteries may move the balance of Remark 4 to more gossip, which costs more.
        """
        figure = at_least(need_j)
        for _ in range(_MOST_RAISED):
            devices = self.world.devices
            battery_j = np.maximum(devices.energy_budget_j, float(figure))
            world = replace(self.world, devices=replace(devices, energy_budget_j=battery_j))
            paid, deadline_s = _Planner(replace(self.ground, world=world))._fits(n)
            if paid:
                break
            figure = at_least(float(figure) * _RAISE)
        text = f"raise budget.energy_j to at least {figure}"
        return (
            text
            if deadline_s is None
            else f"{text} and raise budget.deadline_s to at least {deadline_s}"
        )

    def _fits(self, n: int) -> tuple[bool, str | None]:
        """Do the batteries pay for n iterations, and which deadline would they need, if another?"""
        scheme = self.ground.ready(n)
        prices, round_s = self.prices(scheme, n), self.world.devices.round_latency_s
        paid = bool((self.total(prices, n) >= n * self.least).all())
        worst_s = float(np.max(prices.latency_s))
        cap = rounds_cap(self.scenario.budget.deadline_s, worst_s, round_s)
        late = bool((cap < self.least).any())
        return paid, enough_s(worst_s, round_s, self.least) if late else None

    def static(self, scheme: Scheme, prices: Prices, n: int) -> History:
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
        return History(
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


def _constants(scenario: Scenario) -> bounds.Constants | None:
    if not scenario.bounds.known:
        return None
    return bounds.Constants(**scenario.bounds.model_dump())
