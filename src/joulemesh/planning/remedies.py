"""What a refusal advises. A remedy is offered once planning with it has given a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import Edit, InfeasibleError, JoulemeshError, Remedy
from joulemesh.ledger import total_of
from joulemesh.planning.budget import (
    at_least,
    enough_s,
    enough_total_s,
    require_affordable,
    rounds_cap,
    rounds_in_all,
)
from joulemesh.planning.clock import TimeLimits
from joulemesh.planning.edits import changed, soon_planned
from joulemesh.planning.iterations import zeta_limit
from joulemesh.tolerance import affordable

if TYPE_CHECKING:
    from joulemesh.ledger import Ledger
    from joulemesh.planning.ground import Ground
    from joulemesh.planning.static import StaticPlanner

__all__ = [
    "FirstRound",
    "fewer_iterations",
    "larger_batteries",
    "prove",
    "remedies",
    "require_somebody",
]

_MOST_STEPS = 8  # constraints that fail one after another until a remedy mends them all
_RAISE, _MOST_RAISED = 1.02, 400  # steps in which a battery is raised until it pays


def prove(refusal: JoulemeshError, ground: Ground, planned: Callable[[Ground], object]) -> None:
    """Leave those remedies to a refusal that planning again confirms.

    Where another constraint fails once a remedy is followed, what mends that is added to it.

    Args:
        refusal: with the remedies that the refusing place computed.
        ground: what could not be planned.
        planned: plans, or refuses without proof.
    """
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
    """What might help where batteries cannot pay.

    Args:
        planner: the one that refuses.
        need_j: what a battery would have to hold if exchanges cost no more then.
        n: number of iterations.
    """
    found = [larger_batteries(planner, need_j, n), *fewer_iterations(planner, n)]
    leaves = planner.options.on_depletion == "leave"
    return found if leaves else [*found, (Edit("plan.on_depletion", "leave"),)]


def fewer_iterations(planner: StaticPlanner, n: int) -> list[Remedy]:
    """The number of iterations that there is energy and time for, if it is less than n.

    Args:
        planner: the one that refuses.
        n: number of iterations.
    """
    most = planner.longest(zeta_limit(planner.options)) if n > 1 else 0
    fits = 0 < most < n and planner.fits(most) == (True, [])
    return [(Edit("plan.iterations", most, "lower"),)] if fits else []


def larger_batteries(planner: StaticPlanner, need_j: float, n: int) -> Remedy:
    """Batteries that pay, and the deadline and the total time that they need.

    Larger batteries may move the balance of Remark 4 to more gossip, which costs more.

    Args:
        planner: the one that refuses.
        need_j: what a battery would have to hold if exchanges cost no more then.
        n: number of iterations.
    """
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
    """What the device lacks that is closest to a single round, where no round is compulsory.

    Attributes:
        device: its number.
        lacks: for ``"energy"``, ``"deadline"`` and ``"time"``, as far as it lacks them, what to
            raise; None for the energy, which others may lack as well.
        idle_j: what is drawn at rest meanwhile, if that is counted.
    """

    device: int
    lacks: dict[str, Edit | None]
    idle_j: float = 0.0

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
    """bool [N]: devices for a single round of which some battery does not pay.

    Everybody draws power while one device trains.
    """
    if planner.world.devices.idle_w is None:
        return np.asarray(planner.total(prices, n) < 1)
    purse, rest_s = planner.purse(prices, n), planner.least_s(prices, n)
    last_s = purse.longest_s(TimeLimits(None, None), n, 0)
    each_s = rest_s + purse.waiting.round_s
    idle_j = purse.waiting.of(1.0) * each_s
    paid = affordable(purse.battery_j, purse.round_j, purse.exchange_j, idle_j)
    return np.asarray((paid < 1) | (each_s > last_s))


def require_somebody(planner: StaticPlanner, prices: Ledger, n: int) -> None:
    """Refuse a plan of a policy that may leave rounds out, if nobody can train a single one.

    Args:
        planner: of such a policy.
        prices: of the exchanges.
        n: number of iterations.

    Raises:
        InfeasibleError: naming the device that is closest to a round, and what it lacks.
    """
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
