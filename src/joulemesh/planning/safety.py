"""What a plan keeps for safety: the difference between a safe quantile and the mean."""

from __future__ import annotations

__all__ = ["Safety", "safety_of"]

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.ledger import alike
from joulemesh.units import duration, energy
from joulemesh.world import build_world
from joulemesh.world.intervals import DEVICE_FIGURES, Intervals

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Safety:
    """What ``plan.safety`` costs a plan.

    Attributes:
        probability: that all budgets hold, given the intervals.
        figures: number of figures that have an interval.
        deviations: standard deviations above the mean at which each is taken.
        expected_j: joules of all devices together, if every figure is its mean.
        expected_s: seconds of all iterations together, if every figure is its mean.
        planned_j: joules that are planned with.
        planned_s: seconds that are planned with.
        exact: measured fields without an interval, which are taken as exact.
    """

    probability: float
    figures: int
    deviations: float
    expected_j: float
    expected_s: float
    planned_j: float
    planned_s: float
    exact: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In one sentence."""
        taken = f"; taken as exact: {', '.join(self.exact)}" if self.exact else ""
        return (
            f"all budgets hold with probability {self.probability:g}: the {self.figures:,} figures "
            f"that have an interval are taken {self.deviations:.3g} standard deviations above "
            f"their means; {energy(self.expected_j)} of {energy(self.planned_j)} and "
            f"{duration(self.expected_s)} of {duration(self.planned_s)} are expected{taken}"
        )


def safety_of(plan: Plan) -> tuple[Safety, FloatArray] | None:
    """What a plan keeps for safety, and how much of it each device does, [N] joules.

    None where ``plan.safety`` is not given.
    """
    scenario = plan.scenario
    if scenario.plan.safety is None:
        return None
    spent, seconds = _at_means(plan)
    known = Intervals(scenario)
    given = [field for field in DEVICE_FIGURES if getattr(scenario.devices, field) is not None]
    made = Safety(
        scenario.plan.safety,
        known.figures,
        known.shift,
        float(spent.sum()),
        seconds,
        float(plan.spent_j.sum()),
        plan.time_s,
        tuple(f"devices.{field}" for field in given if not _has_interval(known, field)),
    )
    return made, np.maximum(plan.spent_j - spent, 0.0)


def _at_means(plan: Plan) -> tuple[FloatArray, float]:
    """Joules [N] and seconds of a plan's rounds and routes, if every figure is its mean."""
    scenario = plan.scenario
    mean = scenario.model_copy(update={"plan": scenario.plan.model_copy(update={"safety": None})})
    world = build_world(mean, plan.work.round_samples)
    ground = replace(plan.ground, scenario=mean, world=world)
    devices, same = world.devices, alike(plan.exchange_j)
    spent, seconds = plan.rounds.sum(axis=0) * devices.round_energy_j, 0.0
    prices = None
    for t, rounds in enumerate(plan.rounds):
        route = plan.route(t + 1)
        length = float((rounds * devices.round_latency_s).max())
        if route is not None and len(route.edge):
            if prices is None or not same:
                costs = ground.costs(t, plan.timeline.snapshot(t))
                prices = ground.pricer.route(route, costs)
            spent = spent + prices.exchange_j[0]
            length += float(prices.seconds[0])
        if devices.idle_w is not None:
            spent = spent + np.where(plan.active[t], devices.idle_w * length, 0.0)
        seconds += length
    return spent, seconds


def _has_interval(known: Intervals, field: str) -> bool:
    column = getattr(known.scenario.devices, field)
    return isinstance(column, str) and any(known.table.get(f"{column}_low", ()))
