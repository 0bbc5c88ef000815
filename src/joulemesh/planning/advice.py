"""What a plan comes to, in two sentences: what binds, what is left over, what would help most.

What a change would bring is found by making it in the scenario and planning again. A handful of
changes is tried, each of one thing: a limit of time, the batteries, the number of iterations, or a
setting. Budgets are raised to four times what they are at most, and no further than they seem to be
of use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import Edit, JoulemeshError, in_words
from joulemesh.base.units import duration
from joulemesh.planning.budget import at_least
from joulemesh.planning.iterations import zeta_limit
from joulemesh.planning.plan import Plan, absent
from joulemesh.planning.policy import policy_of
from joulemesh.planning.static import changed, plan_of, soon_planned
from joulemesh.registries import SCHEMES

__all__ = ["Answer", "Change", "advice"]

FloatArray = NDArray[np.float64]

FACTOR = 4.0
"""How far a budget is raised at most."""
_SETTING, _ONE_DEVICE, _BUDGET = range(3)  # what a change costs: nothing, one device, all of them
_WORTHWHILE = 1.25  # gain with which a change that costs little comes before one that costs more
_NOTABLE = 1.05
_DOMINATES = 0.5
_KINDS = ("deadline", "time", "energy", "idle", "policy", "left")


@dataclass(frozen=True)
class Change:
    """One change, and what planning with it gives.

    Attributes:
        edit: what changes in the scenario (`joulemesh.planning.static.apply_edits`).
        measure: what is counted, ``"rounds"`` or ``"iterations"``.
        amount: how many of them there are then.
        gain: that many times as many as now.
    """

    edit: Edit
    measure: str
    amount: int
    gain: float


@dataclass(frozen=True)
class Answer:
    """What a plan comes to.

    Attributes:
        feasible: the budgets pay for the iterations that were asked for: nobody leaves for want of
            joules before the end. Who is away then because a trace says so is no obstacle.
        binding: how many devices are kept from more by the ``"deadline"``, the total ``"time"``,
            their battery (``"energy"``) or the ``"policy"``, or have ``"left"``.
        energy_left: share of all batteries that is left at the end.
        time_left: share of the total time that is left; without one, of the deadlines, on average.
        change: what would help most, or None if nothing that was tried adds 5 %.
        tried: all changes that were tried, the best first; empty if the plan is too large for that.
        text: two sentences.

    >>> import joulemesh
    >>> answer = joulemesh.plan(joulemesh.Scenario.preset("adaptive")).answer
    >>> answer.feasible, answer.text.split(":")[0]
    (True, 'Feasible')
    """

    feasible: bool
    binding: Mapping[str, int]
    energy_left: float
    time_left: float
    change: Change | None
    tried: tuple[Change, ...]
    text: str


def advice(plan: Plan) -> Answer:
    """Say what binds a plan, what is left over, and which one change would help most.

    Changes are compared by what planning with them brings: more rounds of training, or more
    iterations where as many as possible are asked for. A change of settings comes before one that
    costs energy or time, if it brings a quarter more. Plans that take more than about a second are
    not made again, and the answer says so.

    Args:
        plan: a plan.

    Returns:
        The answer.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"budget.energy_j": 3600.0})
    >>> print(advice(joulemesh.plan(scenario)).text)
    Feasible: 99.4 % of the energy in all batteries is left over because the deadline of 40 ms binds
    all 20 devices. Set the deadline to 160 ms, and they could train 5.1 times as many rounds
    (113,300 in place of 22,100).
    """
    prospects = _Prospects(plan)
    found = list(prospects.tried())
    found.sort(key=lambda pair: -pair[1].gain)
    best = _best(found)
    counts = {kind: int((plan.binding == kind).sum()) for kind in _KINDS}
    asked = plan.scenario.plan.iterations
    away = absent(plan)
    unpaid = int((~plan.active[-1] & ~away).sum())
    feasible = not unpaid and (not isinstance(asked, int) or asked == plan.iterations)
    left = (
        float(plan.margin_j.sum() / plan.supplied_j.sum()),
        _time_left(plan),
    )
    verdict = f"{_verdict(prospects, feasible, unpaid)}{_away(int(away.sum()), len(away))}"
    text = f"{verdict}: {_state(plan, counts, *left)}."
    tried = tuple(change for _, change in found)
    return Answer(feasible, counts, *left, best, tried, f"{text} {_remedy(prospects, best)}")


def _time_left(plan: Plan) -> float:
    if plan.total_s is not None:
        return plan.margin_total_s / plan.total_s
    assert plan.deadline_s is not None  # one of them is given
    return float(plan.margin_s.mean() / plan.deadline_s)


def _best(found: list[tuple[int, Change]]) -> Change | None:
    """The most helpful change; cheap ones first, if they are worthwhile."""
    for most in (_SETTING, _ONE_DEVICE, _BUDGET):
        enough = _NOTABLE if most == _BUDGET else _WORTHWHILE
        for cost, change in found:
            if cost <= most and change.gain >= enough:
                return change
    return None


# What is tried ----------------------------------------------------------------------------------

_Candidate = tuple[int, Edit]  # what it costs, and the change


@dataclass(frozen=True)
class _Prospects:
    """A plan, and what stands in the way of more."""

    plan: Plan

    @cached_property
    def asks_longest(self) -> bool:
        """Is the number of iterations to be the largest?"""
        return bool(self.plan.scenario.plan.iterations == "longest")

    @property
    def measure(self) -> str:
        """What is counted: ``"iterations"`` where most are asked for; otherwise ``"rounds"``."""
        return "iterations" if self.asks_longest else "rounds"

    @property
    def amount(self) -> int:
        """How much of it the plan has."""
        return self._amount(self.plan)

    def _amount(self, plan: Plan) -> int:
        return plan.iterations if self.asks_longest else int(plan.rounds.sum())

    @cached_property
    def soon(self) -> bool:
        """Can the plan be made again in about a second?"""
        return soon_planned(self.plan.ground, self.plan.iterations)

    def tried(self) -> Iterator[tuple[int, Change]]:
        """Every candidate that can be planned, with what it costs and brings."""
        if not self.soon:
            return
        for cost, edit in self._candidates():
            try:
                made = plan_of(changed(self.plan.ground, [edit]), proof=False)
            except JoulemeshError:
                continue
            amount = self._amount(made)
            yield cost, Change(edit, self.measure, amount, amount / max(self.amount, 1))

    @cached_property
    def lasts(self) -> FloatArray:
        """float64 [N]: iterations for which each battery lasts, about."""
        with np.errstate(divide="ignore"):  # an exchange without a round may cost nothing
            return np.asarray(self.plan.energy_budget_j / self._iteration_j)

    @cached_property
    def _iteration_j(self) -> FloatArray:
        """float64 [N]: joules of the least rounds, an exchange and rest, on average."""
        fixed_j = self.plan.exchange_total_j + self.plan.idle_total_j
        least_j = self.plan.ground.least * self._round_j
        return np.asarray(least_j + fixed_j / self.plan.iterations)

    @cached_property
    def lasts_s(self) -> float:
        """Iterations for which the total time lasts, about; infinite without one."""
        if self.plan.total_s is None:
            return math.inf
        slowest_s = self.plan.ground.least * float(self._round_s.max())
        each_s = slowest_s + float(self.plan.exchange_s.mean())
        return self.plan.total_s / each_s if each_s else math.inf

    @cached_property
    def _dominated_j(self) -> bool:
        """Do exchanges take most of the joules?"""
        return float(self.plan.exchange_total_j.sum()) > _DOMINATES * float(self.plan.spent_j.sum())

    @cached_property
    def _dominated_s(self) -> bool:
        """Do exchanges take most of the time?"""
        if self.plan.deadline_s is not None:
            return float(self.plan.exchange_s.max()) > _DOMINATES * self.plan.deadline_s
        return float(self.plan.exchange_s.sum()) > _DOMINATES * (self.plan.total_s or math.inf)

    @property
    def _round_j(self) -> FloatArray:
        return self.plan.world.devices.round_energy_j

    @property
    def _round_s(self) -> FloatArray:
        return self.plan.world.devices.round_latency_s

    def _candidates(self) -> Iterator[_Candidate]:
        """Changes that are worth trying, in no order."""
        if self.asks_longest:
            yield from self._zeta()
            yield from self._weakest()
            yield _BUDGET, Edit("budget.energy_j", FACTOR, "scale")
            yield from self._longer(
                float(self.lasts.min()) / self.lasts_s * (self.plan.total_s or 0.0)
            )
        else:
            yield from self._policy()
            yield from self._deadline()
            yield from self._total_time()
            yield from self._more_battery()
            yield from self._iterations()
        yield from self._exchange()

    def _most_s(self, kind: str) -> float:
        """Seconds of an iteration in which those whom a limit binds would empty their batteries."""
        each_s = np.ceil(self.plan.timeline.total / self.plan.iterations) * self._round_s
        longest_s = np.max(each_s, where=self.plan.binding == kind, initial=0.0)
        return float(self.plan.exchange_s.max() + longest_s)

    def _deadline(self) -> Iterator[_Candidate]:
        deadline_s = self.plan.deadline_s
        if deadline_s is not None and (self.plan.binding == "deadline").any():
            value = at_least(min(self._most_s("deadline"), FACTOR * deadline_s), 2)
            yield _BUDGET, Edit("budget.deadline_s", value)

    def _total_time(self) -> Iterator[_Candidate]:
        """More time for all iterations together."""
        if (self.plan.binding == "time").any():
            yield from self._longer(self.plan.iterations * self._most_s("time"))

    def _longer(self, enough_s: float) -> Iterator[_Candidate]:
        """A longer total time, if one is given; no longer than is of use."""
        total_s = self.plan.total_s
        if total_s is None:
            return
        value = at_least(min(enough_s, FACTOR * total_s), 2)
        if value > total_s:
            yield _BUDGET, Edit("budget.total_s", value)

    def _more_battery(self) -> Iterator[_Candidate]:
        bound = np.isin(self.plan.binding, ("energy", "left"))
        if not bound.any():
            return
        cap = self.plan.timeline.cap
        most = cap.sum(axis=0) * (self.plan.iterations if len(cap) == 1 else 1)
        full_j = self.plan.exchange_total_j + self.plan.idle_total_j + most * self._round_j
        enough = float((full_j / self.plan.energy_budget_j)[bound].max())  # then the deadline binds
        if enough > 1:
            yield _BUDGET, Edit("budget.energy_j", at_least(min(enough, FACTOR), 2), "scale")

    def _weakest(self) -> Iterator[_Candidate]:
        """Raise the one battery that ends the plan until the next one would."""
        if len(self.lasts) < 2:
            return
        device, following = (int(i) for i in np.argsort(self.lasts, kind="stable")[:2])
        before = float(self.plan.energy_budget_j[device])
        value = at_least(math.floor(self.lasts[following]) * float(self._iteration_j[device]), 3)
        if before < value < math.inf:
            yield _ONE_DEVICE, Edit("budget.energy_j", value, device=device)

    def _iterations(self) -> Iterator[_Candidate]:
        """More of them where batteries would last; half of them where exchanges eat the energy."""
        # A number that the planner chooses itself is left to it.
        if not isinstance(self.plan.scenario.plan.iterations, int):
            return
        n, most = self.plan.iterations, min(float(self.lasts.min()), self.lasts_s)
        more = math.floor(min(most, zeta_limit(self.plan.scenario.plan) or most, FACTOR * n))
        if (self.plan.binding == "deadline").any() and more > n:
            yield _BUDGET, Edit("plan.iterations", more)
        if self._dominated_j and n > 1:
            yield _SETTING, Edit("plan.iterations", n // 2)

    def _exchange(self) -> Iterator[_Candidate]:
        """Cheaper exchanges, where they matter."""
        if not (self._dominated_j or self._dominated_s) or not self.plan.timeline.scheme.exact:
            return
        known = self.plan.scenario.network.channel_known
        for kind in SCHEMES:
            possible = kind.advised and (known or not kind.floods_costs)
            if possible and kind.name != self.plan.scheme:
                yield _SETTING, Edit("plan.aggregation", kind.name)

    def _policy(self) -> Iterator[_Candidate]:
        """As many rounds as fit, where a policy leaves some out."""
        options = self.plan.scenario.plan
        if policy_of(options).spends != "all":
            yield _SETTING, Edit("plan.rounds", "theorem4")
        if "fixed_rounds" in policy_of(options).parameters:
            total = self.plan.timeline.total // self.plan.iterations
            most = int(np.minimum(self.plan.timeline.cap.min(axis=0), total).min())
            if most > options.fixed_rounds:
                yield _SETTING, Edit("plan.fixed_rounds", most)

    def _zeta(self) -> Iterator[_Candidate]:
        if zeta_limit(self.plan.scenario.plan) == self.plan.iterations:
            yield _SETTING, Edit("plan.zeta", "auto")


# Words -----------------------------------------------------------------------------------------


def _verdict(prospects: _Prospects, feasible: bool, gone: int) -> str:
    """Whether the plan does what was asked, and what ends it."""
    plan = prospects.plan
    if prospects.asks_longest:
        limit = f"the battery of {plan.name(int(np.argmin(prospects.lasts)))}"
        if prospects.lasts_s < prospects.lasts.min():
            limit = f"the total time of {_spelled(plan.total_s)}"
        if zeta_limit(plan.scenario.plan) == plan.iterations:
            limit = f"plan.zeta = {plan.scenario.plan.zeta:g}"
        return f"Feasible for {plan.iterations:,} iterations, limited by {limit}"
    if feasible:
        return "Feasible"
    leave = "leaves" if gone == 1 else "leave"
    early = [f"{_devices(gone, len(plan.energy_budget_j))} {leave} before the end"] if gone else []
    asked = plan.scenario.plan.iterations
    if isinstance(asked, int) and asked != plan.iterations:
        early.append(f"the plan ends after {plan.iterations:,} of {asked:,} iterations")
    return f"Not feasible as asked, because {' and '.join(early)}"


def _away(number: int, count: int) -> str:
    """Who is away at the end because the scenario says so, to follow the verdict."""
    if not number:
        return ""
    return f" ({_devices(number, count)} {'is' if number == 1 else 'are'} away at the end)"


def _state(plan: Plan, counts: Mapping[str, int], energy_left: float, time_left: float) -> str:
    """What binds whom, and what is left over."""
    count = len(plan.energy_budget_j)
    names = {
        "deadline": f"the deadline of {_spelled(plan.deadline_s)} binds",
        "time": f"the total time of {_spelled(plan.total_s)} binds",
        "energy": "the battery binds",
        "idle": "the energy of waiting (devices.idle_w) binds",
        "policy": f'plan.rounds = "{plan.scenario.plan.rounds}" binds',
    }
    clock = "the time before the deadlines" if plan.total_s is None else "the total time"
    joules = f"{_percent(energy_left)} of the energy in all batteries"
    seconds = f"{_percent(time_left)} of {clock}"
    other = {"energy": seconds, "deadline": joules, "time": joules}
    held = sorted((kind for kind in names if counts[kind]), key=lambda kind: -counts[kind])
    if held and counts[held[0]] == count and held[0] in other:
        why = f"{names[held[0]]} {_devices(count, count)}"
        return f"{other[held[0]]} is left over because {why}"
    bound = " and ".join(f"{names[kind]} {_devices(counts[kind], count)}" for kind in held)
    rest = f"{joules} and {seconds} are left over"
    return f"{bound}; {rest}" if bound else rest


def _spelled(allowed_s: float | None) -> str:
    return "" if allowed_s is None else duration(allowed_s)


def _devices(number: int, count: int) -> str:
    return f"all {count:,} devices" if number == count else f"{number:,} of {count:,} devices"


def _percent(share: float) -> str:
    """A share in per cent, exact enough that nearly all or nothing does not read as that."""
    small = min(share, 1 - share)
    digits = 0
    if 0 < small < 0.1:
        digits = int(np.clip((share < 0.5) - np.floor(np.log10(100 * small)), 0, 4))
    text = f"{100 * share:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} %"


def _remedy(prospects: _Prospects, best: Change | None) -> str:
    if not prospects.soon:
        return "The plan is too large to try changes by planning again."
    if best is None:
        return f"No single change that was tried adds 5 % to the {prospects.measure}."
    gain = f"{best.gain:.2g}" if best.gain < 99.5 else f"{best.gain:,.0f}"
    verb = "last for" if best.measure == "iterations" else "train"
    change = in_words([best.edit], prospects.plan.names)
    return (
        f"{change[0].upper()}{change[1:]}, and they could {verb} {gain} times as many "
        f"{best.measure} ({best.amount:,} in place of {prospects.amount:,})."
    )
