"""Transmit powers of a plan: joules at those that were chosen, and how long exchanges may take.

With ``plan.power = "just-in-time"`` rounds, routes and seconds are those of the plan at the highest
powers, and only the joules of exchanges fall. With ``"auto"`` exchanges may also take longer, and
everything is planned with their prices: slower exchanges cost fewer joules and leave less time for
rounds, so the length that leaves most for training is inside (notes: length-of-exchanges).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import on_air
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import JoulemeshError
from joulemesh.ledger import alike
from joulemesh.planning.ground import Ground
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan, Timeline

__all__ = ["STRETCHES", "longest_of_use", "mean_power_w", "sent_costs", "with_powers"]

FloatArray = NDArray[np.float64]

STRETCHES = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Seconds of exchanges that are tried, over those at the highest powers."""


def longest_of_use(ground: Ground, value: Callable[[Ground], float]) -> Ground:
    """The ground with the length of exchanges that is worth most to a planner.

    Lengths are tried in order until two in a row are worth less than the best; the least is kept
    of those that are worth the same.
    """
    best, most, worse = ground, -np.inf, 0
    for stretch in STRETCHES:
        tried = replace(ground, stretch=stretch)
        try:
            worth = value(tried)
        except JoulemeshError:
            worth = -np.inf
        if worth > most:
            best, most, worse = tried, worth, 0
        elif np.isfinite(most):
            worse += 1
        if worse == 2:
            break
    return best


def with_powers(
    ground: Ground, timeline: Timeline, route: Callable[[int], Route | None]
) -> Timeline:
    """A timeline that was decided at the highest powers, with the joules of those that are used.

    ``route`` gives what is sent in a row; None where nothing is.
    """
    if ground.decided_on is ground or not timeline.exchanged.any():
        return timeline
    full, low, exchange = ground.decided_on.pricer, ground.pricer, timeline.exchange
    columns = {"transmit_j": exchange.transmit_j, "receive_j": exchange.receive_j}
    one = timeline.routes is None and not timeline.scheme.random and alike(exchange.transmit_j)
    rows = [0] if one else np.flatnonzero(timeline.exchanged).tolist()
    spent = {name: np.array(values[:1] if one else values) for name, values in columns.items()}
    saved: dict[tuple[int, int], list[FloatArray]] = {}
    for row in rows:
        sent, costs = route(row), ground.costs(timeline.first + row, timeline.snapshot(row))
        assert sent is not None
        key = id(sent), id(costs)
        if key not in saved or timeline.scheme.random:  # routes drawn anew share no number
            at = [pricer.beside(sent, costs) for pricer in (full, low)]
            saved = {key: [getattr(at[0], name)[0] - getattr(at[1], name)[0] for name in columns]}
        for name, less in zip(columns, saved[key], strict=True):
            spent[name][row] -= less
    shape = exchange.transmit_j.shape
    made = {name: np.broadcast_to(np.maximum(values, 0.0), shape) for name, values in spent.items()}
    return replace(timeline, exchange=replace(exchange, **made))


# What a plan shows --------------------------------------------------------------------------------


def sent_costs(plan: Plan, iteration: int) -> LinkCosts:
    """Costs of all links at the powers with which an iteration (1..n) is sent."""
    row = iteration - 1
    costs = plan.ground.costs(plan.timeline.first + row, plan.timeline.snapshot(row))
    route = plan.route(iteration)
    if route is None or not plan.timeline.exchanged[row]:
        return costs.settled
    return plan.ground.pricer.sent(route, costs)


def mean_power_w(plan: Plan, iteration: int = 1) -> FloatArray | None:
    """float64 [N]: mean transmit power of each device over the seconds in which it sends.

    0 for a device that does not send; None where a plan chooses no powers.
    """
    if plan.scenario.plan.power == "full":
        return None
    route, costs = plan.route(iteration), sent_costs(plan, iteration)
    devices, medium = plan.ground.world.devices, plan.ground.pricer.medium
    count = len(devices.transmit_power_w)
    if route is None or not len(route.edge):
        return np.zeros(count)
    place = route.link_index[route.edge], (~route.forward).astype(np.int64)
    each_w = devices.transmit_power_w[route.sender]
    if costs.power_w is not None:
        each_w = costs.power_w[place]
    air = on_air(route, costs, broadcast=medium.broadcast)
    power_w = np.zeros(len(air.sender))
    np.maximum.at(power_w, air.carrier, each_w)
    seconds = np.bincount(air.sender, air.seconds, count)
    watts = np.bincount(air.sender, air.seconds * power_w, count)
    return np.asarray(np.divide(watts, seconds, out=np.zeros(count), where=seconds > 0))
