"""What a refusal advises about batteries that cannot pay. Every remedy has been tried."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.planning.budget import at_least
from joulemesh.planning.horizon import zeta_limit

if TYPE_CHECKING:
    from joulemesh.planning.static import StaticPlanner

__all__ = ["fewer_iterations", "larger_batteries", "remedies"]

_MOST_TRIED = 200_000  # entries of a plan that is made only to see whether a remedy helps
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
