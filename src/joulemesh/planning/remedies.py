"""What a refusal advises about batteries that cannot pay. Every remedy has been tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.planning.budget import (
    at_least,
    enough_s,
    enough_total_s,
    require_affordable,
    rounds_cap,
    rounds_in_all,
)
from joulemesh.planning.clock import TimeLimits
from joulemesh.planning.exact import most_affordable
from joulemesh.planning.horizon import zeta_limit
from joulemesh.units import counted, duration, energy

if TYPE_CHECKING:
    from joulemesh.planning.pricing import Prices
    from joulemesh.planning.static import StaticPlanner

__all__ = ["FirstRound", "fewer_iterations", "larger_batteries", "remedies", "require_somebody"]

_MOST_TRIED = 200_000  # entries of a plan that is made only to see whether a remedy helps
_ROUNDING = 1 + 1e-12  # of a sum that is itself rounded, before a figure is made of it
_RAISE, _MOST_RAISED = 1.02, 400  # steps in which a battery is raised until it pays


def remedies(planner: StaticPlanner, need_j: float, n: int) -> list[str]:
    """What to do about batteries that cannot pay.

    Args:
        planner: the one that refuses.
        need_j: what a battery would have to hold if exchanges cost no more then.
        n: number of iterations.
    """
    texts = [larger_batteries(planner, need_j, n)]
    ground, options = planner.ground, planner.options
    texts += fewer_iterations(planner, n)
    if options.on_depletion != "leave" and n * ground.scenario.devices.count <= _MOST_TRIED:
        leaving = options.model_copy(update={"on_depletion": "leave"})
        asked = ground.scenario.model_copy(update={"plan": leaving})
        try:
            planner.on(replace(ground, scenario=asked)).timeline()
        except (InfeasibleError, ScenarioError):
            return texts
        texts.append('set plan.on_depletion = "leave"')
    return texts


def fewer_iterations(planner: StaticPlanner, n: int) -> list[str]:
    """The number of iterations that there is energy and time for, if it is less than n.

    Args:
        planner: the one that refuses.
        n: number of iterations.
    """
    most = planner.longest(zeta_limit(planner.options)) if n > 1 else 0
    fits = 0 < most < n and planner.fits(most) == (True, [])
    return [f"set plan.iterations to at most {most}"] if fits else []


def larger_batteries(planner: StaticPlanner, need_j: float, n: int) -> str:
    """Batteries that pay, and the deadline and the total time that they need.

    Larger batteries may move the balance of Remark 4 to more gossip, which costs more.

    Args:
        planner: the one that refuses.
        need_j: what a battery would have to hold if exchanges cost no more then.
        n: number of iterations.
    """
    world, figure = planner.world, at_least(need_j)
    for _ in range(_MOST_RAISED):
        battery_j = np.maximum(world.devices.energy_budget_j, float(figure))
        raised = replace(world, devices=replace(world.devices, energy_budget_j=battery_j))
        paid, lacks = planner.on(replace(planner.ground, world=raised)).fits(n)
        if paid:
            break
        figure = at_least(float(figure) * _RAISE)
    return " and ".join([f"raise budget.energy_j to at least {figure}", *lacks])


@dataclass(frozen=True)
class FirstRound:
    """What the device lacks that is closest to a single round, where no round is compulsory.

    Attributes:
        device: its number.
        lacks: for ``"energy"``, ``"deadline"`` and ``"time"``, as far as it lacks them, what to
            raise; how far, only for the time.
        rest: what is drawn at rest meanwhile, in words; empty if it is not counted.
    """

    device: int
    lacks: dict[str, str]
    rest: str = ""

    @classmethod
    def of(cls, planner: StaticPlanner, prices: Prices, n: int) -> FirstRound:
        """Of a planner whose policy may leave rounds out, for n exchanges at some prices."""
        devices, limits = planner.world.devices, planner.limits
        round_s, exchange_s = devices.round_latency_s, prices.latency_s
        short = {"energy": _unpaid_round(planner, prices, n)}
        worst_s = float(exchange_s.max())
        if limits.deadline_s is not None:
            some = rounds_cap(limits.deadline_s, float(exchange_s.min()), round_s) < 1
            short["deadline"] = some | (rounds_cap(limits.deadline_s, worst_s, round_s) < 0)
        if limits.total_s is not None:
            short["time"] = rounds_in_all(limits.total_s, exchange_s, round_s, n) < 1
        number = np.sum(list(short.values()), axis=0)
        closest = np.flatnonzero(number == number.min())
        device = int(closest[np.argmin(round_s[closest])])
        one = round_s[device : device + 1]
        figures = {
            "energy": "budget.energy_j",
            "deadline": f"budget.deadline_s to at least {enough_s(worst_s, one, 1)}",
            "time": f"budget.total_s to at least {enough_total_s(exchange_s, one, n, 1)}",
        }
        lacks = {kind: f"raise {figures[kind]}" for kind in short if short[kind][device]}
        if devices.idle_w is None:
            return cls(device, lacks)
        waits = energy(float(devices.idle_w[device]) * planner.least_s(prices, n), digits=4)
        return cls(device, lacks, f" and draw {waits} at rest (devices.idle_w)")

    @property
    def in_time(self) -> list[str]:
        """Which limits of time have to be raised."""
        return [text for kind, text in self.lacks.items() if kind != "energy"]


def _unpaid_round(planner: StaticPlanner, prices: Prices, n: int) -> NDArray[np.bool_]:
    """bool [N]: devices for a single round of which some battery does not pay.

    Everybody draws power while one device trains.
    """
    if planner.world.devices.idle_w is None:
        return np.asarray(planner.total(prices, n) < 1)
    purse, rest_s = planner.purse(prices, n), planner.least_s(prices, n)
    last_s = purse.longest_s(TimeLimits(None, None), n, 0)
    each_s = rest_s + purse.waiting.round_s
    idle_j = purse.waiting.rounded(1.0) * each_s
    paid = most_affordable(purse.battery_j, purse.round_j, purse.exchange_j, purse.rest_j, idle_j)
    return np.asarray((paid < 1) | (each_s > last_s))


def require_somebody(planner: StaticPlanner, prices: Prices, n: int) -> None:
    """Refuse a plan of a policy that may leave rounds out, if nobody can train a single one.

    Args:
        planner: of such a policy.
        prices: of the exchanges.
        n: number of iterations.

    Raises:
        InfeasibleError: naming the device that is closest to a round, and what it lacks.
    """
    first = FirstRound.of(planner, prices, n)
    taken_s = float(prices.latency_s.sum()) * (n if len(prices.latency_s) == 1 else 1)
    unpaid = bool((planner.total(prices, n) < 0).any())
    if unpaid and not first.in_time:
        require_affordable(
            planner.demand(prices, n),
            remedies=lambda need_j: remedies(planner, need_j, n),
        )
    if not first.lacks:
        return
    remedy = " and ".join(first.lacks.values())
    if unpaid or "energy" in first.lacks:  # larger batteries may buy dearer exchanges
        need_j = _first_round_j(planner, prices, n, first.device, unpaid=unpaid)
        remedy = larger_batteries(planner, need_j * _ROUNDING, n)
    words = {"energy": "energy", "deadline": "time before the deadline", "time": "time in all"}
    beside = f"{counted(n, 'exchange')}, which {'takes' if n == 1 else 'take'}"
    raise InfeasibleError(
        f"no device has {' and '.join(words[kind] for kind in first.lacks)} for a single round "
        f"beside {beside} {duration(taken_s, digits=6)}{first.rest} (device "
        f"{first.device} is closest to it); {remedy}",
        device=first.device,
        constraint=next(iter(reversed(first.lacks))),
    )


def _first_round_j(
    planner: StaticPlanner, prices: Prices, n: int, device: int, *, unpaid: bool
) -> float:
    """What a battery has to hold so that everybody can wait for one round of a device."""
    purse = planner.purse(prices, n)
    own_s = 0.0 if unpaid else float(purse.waiting.round_s[device])
    need_j = purse.exchange_j + purse.waiting.rounded(planner.least_s(prices, n) + own_s)
    round_j = float(purse.round_j[device])
    if unpaid:
        return float(need_j.max())
    return float(max(need_j[device] + round_j, need_j.max() if purse.waiting.counted else 0.0))
