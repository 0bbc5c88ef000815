"""What a plan comes to, in two sentences: what binds, what is left over, what would help most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from joulemesh.planning.binding import absent
from joulemesh.planning.horizon import zeta_limit
from joulemesh.planning.plan import Plan
from joulemesh.planning.trial import BUDGET, ONE_DEVICE, SETTING, Trial
from joulemesh.planning.trials import Prospects
from joulemesh.units import duration

__all__ = ["Answer", "Change", "advice"]

_WORTHWHILE = 1.25  # gain with which a change that costs little comes before one that costs more
_NOTABLE = 1.05
_KINDS = ("deadline", "time", "energy", "idle", "policy", "left")


@dataclass(frozen=True)
class Change:
    """One change, and what it would bring.

    Attributes:
        field: of the scenario.
        value: to set it to; for the batteries of all devices, the factor by which they grow.
        words: what changes, to follow "with".
        measure: what is counted, ``"rounds"`` or ``"iterations"``.
        amount: how many of them there would be.
        gain: that many times as many as now.
        estimated: True if this was estimated from the plan's mean prices.
    """

    field: str
    value: Any
    words: str
    measure: str
    amount: int
    gain: float
    estimated: bool


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
        tried: all changes that were tried, the best first.
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

    Candidates are planned again and compared by what they bring: more rounds of training, or more
    iterations where as many as possible are asked for. A change of settings comes before one that
    costs energy or time, if it brings a quarter more.

    Args:
        plan: a plan.

    Returns:
        The answer.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"budget.energy_j": 3600.0})
    >>> print(advice(joulemesh.plan(scenario)).text)
    Feasible: 99.4 % of the energy is left over because the deadline of 40 ms binds all 20 devices.
    With a deadline of 160 ms in place of 40 ms they could train 5.1 times as many rounds (113,300
    in place of 22,100).
    """
    prospects = Prospects(plan)
    found = []
    for trial in prospects.candidates():
        measured = prospects.measured(trial)
        if measured is not None:
            found.append((trial, _change(prospects, trial, *measured)))
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


def _change(prospects: Prospects, trial: Trial, amount: int, exact: bool) -> Change:
    gain = amount / prospects.amount
    facts = (trial.field, trial.value, trial.words, prospects.measure)
    return Change(*facts, amount, gain, estimated=not exact)


def _best(found: list[tuple[Trial, Change]]) -> Change | None:
    """The most helpful change; cheap ones first, if they are worthwhile."""
    for cost in (SETTING, ONE_DEVICE, BUDGET):
        enough = _NOTABLE if cost == BUDGET else _WORTHWHILE
        for trial, change in found:
            if trial.cost <= cost and change.gain >= enough:
                return change
    return None


# Words -----------------------------------------------------------------------------------------


def _verdict(prospects: Prospects, feasible: bool, gone: int) -> str:
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
    joules, seconds = f"{_percent(energy_left)} of the energy", f"{_percent(time_left)} of the time"
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
    """A share in per cent, exact enough that nearly all or nothing does not read as that.

    >>> _percent(0.99981), _percent(0.0609), _percent(0.0004), _percent(0.0), _percent(0.37)
    ('99.98 %', '6.1 %', '0.04 %', '0 %', '37 %')
    """
    small = min(share, 1 - share)
    digits = 0
    if 0 < small < 0.1:
        digits = int(np.clip((share < 0.5) - np.floor(np.log10(100 * small)), 0, 4))
    text = f"{100 * share:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} %"


def _remedy(prospects: Prospects, best: Change | None) -> str:
    if best is None:
        return f"No single change that was tried adds 5 % to the {prospects.measure}."
    gain = f"{best.gain:.2g}" if best.gain < 99.5 else f"{best.gain:,.0f}"
    about = "about " if best.estimated else ""
    verb = "last for" if best.measure == "iterations" else "train"
    return (
        f"With {best.words} they could {verb} {about}{gain} times as many {best.measure} "
        f"({best.amount:,} in place of {prospects.amount:,})."
    )
