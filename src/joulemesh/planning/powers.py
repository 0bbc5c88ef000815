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
from joulemesh.aggregation.tree import FRAME_BITS, TreeChunked, most_chunks
from joulemesh.base.errors import JoulemeshError
from joulemesh.base.units import energy, si
from joulemesh.ledger import alike
from joulemesh.planning.ground import Ground
from joulemesh.tolerance import TOLERANCE
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan, Timeline

__all__ = [
    "STRETCHES",
    "cut_finer",
    "longest_of_use",
    "mean_power_w",
    "note_on_powers",
    "sent_costs",
    "with_powers",
]

FloatArray = NDArray[np.float64]

STRETCHES = (1.0, 1.02, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Seconds of exchanges that are tried, over those at the highest powers."""

_SOME = 32  # exchanges that stand for all, where they differ
_SAME = 1.0005
_MANY = 5_000  # devices, of which every second length is tried, and chunks stay as they are
_WORTH = 0.98  # of the joules: more chunks are taken for no less


def longest_of_use(ground: Ground, value: Callable[[Ground], float]) -> Ground:
    """The ground with the length of exchanges that is worth most to a planner.

    Lengths are tried in order until two in a row are worth less than the best; the least is kept
    of those that are worth the same.
    """
    best, most, worse = ground, -np.inf, 0
    many = ground.world.graph.devices > _MANY
    for stretch in STRETCHES[::2] if many else STRETCHES:
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


def cut_finer(ground: Ground, timeline: Timeline) -> tuple[Ground, Route]:
    """More chunks for a pipelined tree, where they make room for lower powers in the same time.

    The fewest chunks are planned that are nearly as fast as the most. A pipeline in which every
    link sends as slowly as the slowest fills and empties more slowly, and more chunks make up for
    that. Devices hold the same numbers afterwards.
    """
    route, scheme = timeline.route, timeline.scheme
    found = ground, route
    changes = timeline.routes is not None or len(timeline.schemes) > 1 or not len(route.edge)
    if changes or not isinstance(scheme, TreeChunked) or scheme.fixed or scheme.medium.turns:
        return found
    many = ground.world.graph.devices > _MANY
    if many or ground.world.packets is not None or ground.width is not None:
        return found  # what is lost, or rounded, depends on the messages
    costs = ground.costs(timeline.first)
    full = ground.decided_on.pricer.exchange(route, costs)
    allowed_s, allowed_j = full.seconds(costs), full.device_j(costs)
    least_j = ground.pricer.beside(route, costs).total_j
    packet_bits = min(costs.packet_bits, FRAME_BITS)
    most = most_chunks(float(route.bits[0]), len(np.unique(route.edges)), packet_bits)
    for chunks in sorted({round((route.chunks * most) ** 0.5), most}):
        if chunks <= route.chunks:
            continue
        finer = replace(route, chunks=chunks)
        own_s = replace(full, route=finer).seconds(costs)
        if own_s >= allowed_s:
            continue
        tried = replace(ground, stretch=allowed_s / own_s)
        spent = tried.pricer.beside(finer, costs)
        cheaper = spent.total_j < _WORTH * least_j
        if cheaper and (spent.exchange_j[0] <= allowed_j * (1 + TOLERANCE)).all():
            found, least_j = (tried, finer), spent.total_j
    return found


def with_powers(
    ground: Ground,
    timeline: Timeline,
    route: Callable[[int], Route | None],
    finer: Route | None = None,
) -> Timeline:
    """A timeline that was decided at the highest powers, with the joules of those that are used.

    ``route`` gives what is sent in a row; None where nothing is. ``finer`` is sent instead of the
    one route that there is.
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
            at = [full.beside(sent, costs), low.beside(finer or sent, costs)]
            saved = {key: [getattr(at[0], name)[0] - getattr(at[1], name)[0] for name in columns]}
        for name, less in zip(columns, saved[key], strict=True):
            spent[name][row] -= less
    shape = exchange.transmit_j.shape
    made = {name: np.broadcast_to(np.maximum(values, 0.0), shape) for name, values in spent.items()}
    timeline = replace(timeline, exchange=replace(exchange, **made))
    if finer is None or not isinstance(timeline.scheme, TreeChunked):
        return timeline
    scheme = replace(timeline.scheme, chunks=finer.chunks)
    return replace(timeline, scheme=scheme, route=finer, schemes=((timeline.first, scheme),))


# What a plan shows --------------------------------------------------------------------------------


def sent_costs(plan: Plan, row: int) -> LinkCosts:
    """Costs of all links at the powers with which the exchange of a row (from 0) is sent."""
    costs = plan.ground.costs(plan.timeline.first + row, plan.timeline.snapshot(row))
    route = plan.route(row + 1)
    return costs.settled if route is None else plan.ground.pricer.sent(route, costs)


def mean_power_w(plan: Plan) -> FloatArray | None:
    """float64 [N]: transmit power of each device, on average over the time in which it sends.

    0 for a device that does not send; None where a plan chooses no powers. Where exchanges differ,
    some of them stand for all.
    """
    if plan.scenario.plan.power == "full":
        return None
    count = len(plan.energy_budget_j)
    seconds, joules = np.zeros(count), np.zeros(count)
    for row in _some(plan):
        route, costs = plan.route(row + 1), sent_costs(plan, row)
        if route is None or not len(route.edge):
            continue
        each_w = plan.world.devices.transmit_power_w[route.sender]
        if costs.power_w is not None:
            way = (~route.forward).astype(np.int64)
            each_w = costs.power_w[route.link_index[route.edge], way]
        air = on_air(route, costs, broadcast=plan.ground.pricer.medium.broadcast)
        power_w = np.zeros(len(air.sender))
        np.maximum.at(power_w, air.carrier, each_w)
        seconds += np.bincount(air.sender, air.seconds * route.repeats, count)
        joules += np.bincount(air.sender, air.seconds * power_w * route.repeats, count)
    return np.asarray(np.divide(joules, seconds, out=np.zeros(count), where=seconds > 0))


def _some(plan: Plan) -> list[int]:
    """Rows with an exchange: one where they are alike, otherwise some from first to last."""
    rows, timeline = np.flatnonzero(plan.timeline.exchanged), plan.timeline
    if len(rows) < 2 or (timeline.routes is None and not timeline.scheme.random):
        return [int(row) for row in rows[:1]]
    some = np.unique(np.linspace(0, len(rows) - 1, _SOME).astype(np.int64))
    return [int(row) for row in rows[some]]


def note_on_powers(plan: Plan) -> str | None:
    """What choosing powers brings, in a sentence; None where a plan chooses none."""
    rows = _some(plan) if plan.scenario.plan.power != "full" else []
    route = plan.route(rows[0] + 1) if rows else None
    power_w = mean_power_w(plan)
    if route is None or power_w is None or not power_w.any():
        return None
    costs = plan.ground.costs(plan.timeline.first + rows[0], plan.timeline.snapshot(rows[0]))
    full = replace(plan.ground, loud=True).pricer.beside(route, costs)
    now = plan.ground.pricer.beside(route, costs)
    longer = float(now.seconds[0] / full.seconds[0])
    late = plan.ground.decided_on is plan.ground and longer > _SAME
    time = f"in {longer:.3g} times the time" if late else "in the same time"
    if not late and plan.ground.stretch > 1.0:
        time += f", in {route.chunks:,} chunks"
    sending = power_w[power_w > 0]
    return (
        f'plan.power = "{plan.scenario.plan.power}": an exchange takes {energy(now.total_j)} '
        f"instead of {energy(full.total_j)} at the highest powers, {time}; devices send at "
        f"{si(float(sending.min()), 'W')} to {si(float(sending.max()), 'W')}, "
        f"{si(float(sending.mean()), 'W')} on average"
    )
