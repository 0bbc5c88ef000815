"""Planning a scenario (Algorithm 3, repaired): scheme, iterations and everybody's rounds.

Under fading and with traces it decides how many iterations there are, and each is planned when it
comes (`joulemesh.planning.walk`). A refusal offers remedies with which planning has given a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.errors import (
    MOST_PER_ITERATION,
    Edit,
    InfeasibleError,
    JoulemeshError,
    Remedy,
    ScenarioError,
    named_refusals,
    require_countable,
)
from joulemesh.data import Dataset
from joulemesh.ledger import Ledger, total_of
from joulemesh.planning.budget import (
    Allotment,
    Demand,
    Purse,
    TimeLimits,
    Waiting,
    at_least,
    enough_s,
    enough_total_s,
    least_s,
    missing_time,
    require_affordable,
    rounds_cap,
    rounds_in_all,
)
from joulemesh.planning.clocks import recharged_anew, with_clocks
from joulemesh.planning.ground import Ground
from joulemesh.planning.iterations import MOST_ENTRIES, Iterations, Merit, zeta_limit
from joulemesh.planning.notes import ask_first, notes_on_inputs, notes_on_outcome, questions
from joulemesh.planning.plan import Plan, Timeline
from joulemesh.planning.powers import (
    cut_finer,
    longest_of_use,
    note_on_powers,
    with_powers,
)
from joulemesh.planning.rounds import stand_in
from joulemesh.scenario import Scenario
from joulemesh.tolerance import affordable
from joulemesh.world import build_world
from joulemesh.world.quantities import resolve

__all__ = [
    "FirstRound",
    "StaticPlanner",
    "apply_edits",
    "changed",
    "fewer_iterations",
    "larger_batteries",
    "plan",
    "plan_of",
    "prove",
    "remedies",
    "require_somebody",
    "soon_planned",
    "with_length",
]

_MOST_ENTRIES = 500_000  # of rounds [n, N], in plans that are made to see what a change brings
_WALKED, _PER_WALKED = 2_000, 50  # entries that take as long as an iteration planned by itself
_UNKNOWN = 100  # iterations, where their number follows from the budgets


def apply_edits(scenario: Scenario, edits: Iterable[Edit]) -> Scenario:
    """The scenario with some changes made.

    A quantity of which devices have each their own is raised where it is too small, and stays where
    it is enough.

    >>> from joulemesh.scenario import Scenario
    >>> one = Scenario(devices={"count": 3}, budget={"energy_j": [1.0, 9.0, 2.0]})
    >>> apply_edits(one, [Edit("budget.energy_j", 4.0, "raise")]).budget.energy_j
    (4.0, 9.0, 4.0)
    """
    return scenario.override({edit.field: _value(scenario, edit) for edit in edits})


def _value(scenario: Scenario, edit: Edit) -> Any:
    section, _, field = edit.field.partition(".")
    now = getattr(getattr(scenario, section), field)
    alike = now is None or isinstance(now, bool | int | float)
    if edit.device is not None:
        values = resolve(scenario, field, now).copy()
        values[edit.device] = edit.value
        return {"values": values.tolist()}
    if edit.how == "scale":
        if isinstance(now, tuple):  # a range, or one for each device
            return [one * edit.value for one in now]
        values = now if alike else resolve(scenario, field, now)
        return values * edit.value if alike else {"values": (values * edit.value).tolist()}
    if edit.how == "raise" and now is not None:
        if alike:
            return max(now, edit.value)
        return {"values": np.maximum(resolve(scenario, field, now), edit.value).tolist()}
    return edit.value


def changed(ground: Ground, edits: Iterable[Edit]) -> Ground:
    """What a plan stands on once some changes are made that leave model and data as they are."""
    scenario = apply_edits(ground.scenario, edits)
    return Ground(scenario, ground.work, build_world(scenario, ground.work.round_samples))


def soon_planned(ground: Ground, iterations: int | None = None) -> bool:
    """Is it a matter of about a second to plan again, so that changes can be tried?"""
    options = ground.scenario.plan
    wanted = options.iterations if isinstance(options.iterations, int) else _UNKNOWN
    each = count = ground.scenario.devices.count
    if ground.world.changes or options.on_depletion == "leave":
        each = _WALKED + _PER_WALKED * count
    return (iterations or wanted) * each <= _MOST_ENTRIES


_MOST_STEPS = 8  # constraints that fail one after another until a remedy mends them all
_RAISE, _MOST_RAISED = 1.02, 400  # steps in which a battery is raised until it pays


def prove(refusal: JoulemeshError, ground: Ground, planned: Callable[[Ground], object]) -> None:
    """Leave those remedies to a refusal that planning again confirms."""
    # Where another constraint fails once a remedy is followed, what mends that is added to it.
    if not refusal.remedies:
        return
    if not soon_planned(ground):
        refusal.add_note("the plan is too large to try the remedies: they were computed")
        return
    found: list[Remedy] = []
    last: JoulemeshError | None = None
    for remedy in refusal.remedies:
        try:
            whole = _completed(remedy, ground, planned)
        except JoulemeshError as later:
            last = later
        else:
            if not any(set(one) <= set(whole) for one in found):  # no more than is needed
                found.append(whole)
    futile = ""
    if last is not None and not found:
        last.names = ground.names
        tried = " and ".join(edit.text for edit in refusal.remedies[0])
        futile = f"; {tried}, and then: {last}"
    refusal.offer(found, after=futile)


def _completed(remedy: Remedy, ground: Ground, planned: Callable[[Ground], object]) -> Remedy:
    """A remedy with what else it takes; refused if it leads nowhere."""
    edits = {edit.field: edit for edit in remedy}
    for step in range(_MOST_STEPS):
        try:
            planned(changed(ground, edits.values()))
            break
        except JoulemeshError as later:
            if step == _MOST_STEPS - 1 or not later.remedies:
                raise
            edits |= {edit.field: edit for edit in later.remedies[0]}
    return tuple(edits.values())


def remedies(planner: StaticPlanner, need_j: float, n: int) -> list[Remedy]:
    """What might help where batteries cannot pay."""
    found = [larger_batteries(planner, need_j, n), *fewer_iterations(planner, n)]
    leaves = planner.options.on_depletion == "leave"
    return found if leaves else [*found, (Edit("plan.on_depletion", "leave"),)]


def fewer_iterations(planner: StaticPlanner, n: int) -> list[Remedy]:
    """The number of iterations that there is energy and time for, if it is less than n."""
    most = planner.longest(zeta_limit(planner.options)) if n > 1 else 0
    fits = 0 < most < n and planner.fits(most) == (True, [])
    return [(Edit("plan.iterations", most, "lower"),)] if fits else []


def larger_batteries(planner: StaticPlanner, need_j: float, n: int) -> Remedy:
    """Batteries that pay, and the deadline and the total time that they need."""
    # Larger batteries may move the balance of Remark 4 to more gossip, which costs more.
    world, figure = planner.world, at_least(need_j)
    for _ in range(_MOST_RAISED):
        battery_j = np.maximum(world.devices.energy_budget_j, figure)
        raised = replace(world, devices=replace(world.devices, energy_budget_j=battery_j))
        paid, lacks = planner.on(replace(planner.ground, world=raised)).fits(n)
        if paid:
            break
        figure = at_least(figure * _RAISE)
    return (Edit("budget.energy_j", figure, "raise"), *lacks)


@dataclass(frozen=True)
class FirstRound:
    """What the device lacks that is closest to a single round, where no round is compulsory."""

    device: int  # its number
    # for ``"energy"``, ``"deadline"`` and ``"time"``, as far as it lacks them, what to raise; None
    # for the energy, which others may lack as well
    lacks: dict[str, Edit | None]
    idle_j: float = 0.0  # what is drawn at rest meanwhile, if that is counted

    @classmethod
    def of(cls, planner: StaticPlanner, prices: Ledger, n: int) -> FirstRound:
        """Of a planner whose policy may leave rounds out, for n exchanges at some prices."""
        devices, limits = planner.world.devices, planner.limits
        round_s, exchange_s = devices.round_latency_s, prices.seconds
        short = {"energy": _unpaid_round(planner, prices, n)}
        worst_s = float(exchange_s.max())
        if limits.deadline_s is not None:
            some = rounds_cap(limits.deadline_s, float(exchange_s.min()), round_s) < 1
            short["deadline"] = some | (rounds_cap(limits.deadline_s, worst_s, round_s) < 0)
        if limits.total_s is not None:
            short["time"] = rounds_in_all(limits.total_s, exchange_s, round_s) < 1
        number = np.sum(list(short.values()), axis=0)
        closest = np.flatnonzero(number == number.min())
        device = int(closest[np.argmin(round_s[closest])])
        one = round_s[device : device + 1]
        figures = {
            "energy": None,
            "deadline": Edit("budget.deadline_s", enough_s(worst_s, one, 1), "raise"),
            "time": Edit("budget.total_s", enough_total_s(exchange_s, one, 1), "raise"),
        }
        lacks = {kind: figures[kind] for kind in short if short[kind][device]}
        if devices.idle_w is None:
            return cls(device, lacks)
        return cls(device, lacks, float(devices.idle_w[device]) * planner.least_s(prices, n))

    @property
    def in_time(self) -> list[Edit]:
        """Which limits of time have to be raised."""
        return [edit for edit in self.lacks.values() if edit is not None]


def _unpaid_round(planner: StaticPlanner, prices: Ledger, n: int) -> NDArray[np.bool_]:
    """bool [N]: devices for a single round of which some battery does not pay."""
    # Everybody draws power while one device trains.
    if planner.world.devices.idle_w is None:
        return np.asarray(planner.total(prices, n) < 1)
    purse, rest_s = planner.purse(prices, n), planner.least_s(prices, n)
    last_s = purse.longest_s(TimeLimits(None, None), n, 0)
    each_s = rest_s + purse.waiting.round_s
    idle_j = purse.waiting.of(1.0) * each_s
    paid = affordable(purse.battery_j, purse.round_j, purse.exchange_j, idle_j)
    return np.asarray((paid < 1) | (each_s > last_s))


def require_somebody(planner: StaticPlanner, prices: Ledger, n: int) -> None:
    """Refuse a plan of a policy that may leave rounds out, if nobody can train a single one."""
    first = FirstRound.of(planner, prices, n)
    taken_s = float(total_of(prices.seconds))
    unpaid = bool((planner.total(prices, n) < 0).any())
    if unpaid and not first.in_time:
        require_affordable(
            planner.demand(prices, n),
            remedies=lambda need_j: remedies(planner, need_j, n),
        )
    if not first.lacks:
        return
    remedy: Remedy = tuple(first.in_time)
    if unpaid or "energy" in first.lacks:  # larger batteries may buy dearer exchanges
        need_j = _first_round_j(planner, prices, n, first.device, unpaid=unpaid)
        remedy = larger_batteries(planner, need_j, n)
    words = {"energy": "energy", "deadline": "time before the deadline", "time": "time in all"}
    beside = f"{{count:exchange}}, which {'takes' if n == 1 else 'take'}"
    rest = " and draw {idle_j} at rest (devices.idle_w)" if first.idle_j else ""
    raise InfeasibleError(
        f"no device has {' and '.join(words[kind] for kind in first.lacks)} for a single round "
        f"beside {beside} {{exchange_s}}{rest} ({{device}} is closest to it)",
        code=next(iter(reversed(first.lacks))),
        device=first.device,
        figures={"count": n, "exchange_s": taken_s, "idle_j": first.idle_j},
        remedies=[remedy, *fewer_iterations(planner, n)],
    )


def _first_round_j(
    planner: StaticPlanner, prices: Ledger, n: int, device: int, *, unpaid: bool
) -> float:
    """What a battery has to hold so that everybody can wait for one round of a device."""
    purse = planner.purse(prices, n)
    own_s = 0.0 if unpaid else float(purse.waiting.round_s[device])
    need_j = purse.exchange_j + purse.waiting.of(planner.least_s(prices, n) + own_s)
    round_j = float(purse.round_j[device])
    if unpaid:
        return float(need_j.max())
    return float(max(need_j[device] + round_j, need_j.max() if purse.waiting.counted else 0.0))


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
    """Plan a scenario whose sizes and world are known."""
    with named_refusals(lambda: ground.names):
        try:
            return _planned(ground)
        except JoulemeshError as refusal:
            if proof:
                prove(refusal, ground, _planned)
            raise


def _on_bits(ground: Ground) -> Iterator[str]:
    """Which width was chosen, and what that rests on."""
    if ground.scenario.plan.bits == "auto":
        bits, share = ground.width_by_price
        yield (
            f'plan.bits = "auto" takes {bits} bits: joules × seconds of an exchange are '
            f"{100 * share:.0f} % of those of 32 bits, and rounding is assumed to cost no accuracy "
            "(none was measured on digits; compare with plan.bits = 32)"
        )


def _planned(ground: Ground) -> Plan:
    scenario, world = ground.scenario, ground.world
    ground = with_length(ground)
    doubts = list(notes_on_inputs(scenario, ground.work, world))
    try:
        _, timeline, notes = with_clocks(ground.decided_on, _at_full_clock)
    except InfeasibleError as refusal:
        ask_first(refusal, scenario)
        asked = {question.text for question in questions(scenario)}
        for doubt in doubts:
            if doubt not in asked:
                refusal.add_note(doubt)
        raise
    require_countable(timeline.rounds, _FEWER_ROUNDS)
    doubts += notes_on_outcome(scenario, world, timeline, ground.names)
    made = Plan(ground, timeline, (*notes, *_on_bits(ground), *doubts))
    if scenario.plan.power == "full":
        return made
    if ground.decided_on is not ground:
        decided, (ground, finer) = made, cut_finer(ground, timeline)
        finer_route = None if finer is timeline.route else finer
        timeline = with_powers(ground, timeline, lambda row: decided.route(row + 1), finer_route)
        made = replace(made, ground=ground, timeline=recharged_anew(ground, timeline))
    said = note_on_powers(made)
    return made if said is None else replace(made, notes=(said, *made.notes))


def with_length(ground: Ground) -> Ground:
    """The ground with the length of exchanges that ``plan.power = "auto"`` chooses."""
    return longest_of_use(ground, _worth) if ground.scenario.plan.power == "auto" else ground


def _worth(ground: Ground) -> float:
    """Rounds that batteries and time leave beside exchanges of some length, as forecast."""
    planner = StaticPlanner(ground)
    n = Iterations(planner).chosen()
    scheme = ground.ready(n)
    if ground.clock == "auto" and ground.scenario.plan.goal == "rounds":
        return float(Merit.of(planner, n).rounds(n).sum())
    return float(planner.static(scheme, planner.prices(scheme, n), n).rounds.sum())


def _at_full_clock(ground: Ground, n: int | None = None) -> tuple[int, Timeline, list[str]]:
    """The number of iterations, what is planned for them, and notes."""
    planner = StaticPlanner(ground)
    n = Iterations(planner).chosen() if n is None else n
    timeline = planner.timeline(n)
    if ground.world.traces.leaves is None or ground.world.changes:
        return n, timeline, planner.notes
    from joulemesh.planning.walk import with_departures  # few plans need it

    timeline, more = with_departures(ground, timeline)
    return n, timeline, [*planner.notes, *more]


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

    def timeline(self, n: int) -> Timeline:
        """Every one of n iterations, as it will happen."""
        self.require_size(n, self.scenario.devices.count)
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
            from joulemesh.planning.walk import causal_planner  # few plans need it

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
