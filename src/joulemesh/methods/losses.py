"""Lost packets of methods whose exchanges are those of schemes, as a plan's are drawn."""

from __future__ import annotations

__all__ = ["neighbours", "with_losses"]

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from joulemesh.aggregation.patterned import NEIGHBOURS
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Fit, Scheme
from joulemesh.methods.base import Contender
from joulemesh.methods.setting import Setting
from joulemesh.planning.drawing import Course, draw
from joulemesh.registries import SCHEMES
from joulemesh.setup.from_plan import lossy_schedule


def with_losses(setting: Setting, made: Contender, scheme_at: Callable[[int], Scheme]) -> Contender:
    """A method as its exchanges turn out where packets are lost; itself where none is.

    Batteries are not overdrawn by what is drawn, unless the method overdraws them as expected
    (``equal = "time"``).

    Args:
        setting: the terms of the comparison.
        made: with expected joules and seconds.
        scheme_at: the scheme of its exchange in an iteration (from 0).

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods import build
    >>> lossy = Scenario.preset("adaptive").override({"network.packet_error": 0.2})
    >>> made = build("fixed:1", lossy)
    >>> made.drawn, bool((made.leftover_j() >= 0).all())
    (True, True)
    """
    packets, ground = setting.world.packets, setting.ground
    if packets is None:
        return made
    ledger, n, held = made.reserve, made.schedule.iterations, {}

    def route(t: int) -> Route | None:
        if not made.schedule.exchanged[t]:
            return None
        scheme = scheme_at(t)
        key = id(scheme) if not (scheme.random or setting.fading) else (id(scheme), t)
        if key not in held:
            held[key] = scheme.route(ground.seen_costs(t), t)
        return held[key]

    shape = (n, setting.devices)
    heard, spare_j = ledger.receive_j, made.leftover_j()
    course = Course(
        ground,
        route,
        np.broadcast_to(ledger.exchange_j, shape),
        None if heard is None else np.broadcast_to(heard, shape),
        ledger.latency_s,
        made.schedule.active,
        np.where(spare_j < 0, np.inf, spare_j)[None],
    )
    found = draw(course, packets)
    latency_s, idle_w = ledger.latency_s + found.longer_s, setting.world.devices.idle_w
    rest = None if found.awake_s is None or idle_w is None else idle_w * found.awake_s
    drawn = replace(
        ledger,
        exchange_j=found.exchange_j,
        latency_s=latency_s,
        receive_j=found.receive_j,
        idle_j=ledger.idle_j if rest is None else rest,
    )
    schedule = made.schedule
    if found.lost_messages.any():
        chunk = setting.scenario.training.chunk_iterations
        routes = [route(t) for t in range(n)]
        schedule = lossy_schedule(schedule, routes, scheme_at, found, chunk_iterations=chunk)
    deadline_s = setting.scenario.budget.deadline_s
    late = 0 if deadline_s is None else int((latency_s > deadline_s).sum())
    expected_s = float(
        sum(
            setting.pricer.beside(one, ground.costs(t)).latency_s[0]
            for t in range(n)
            if (one := route(t)) is not None
        )
    )
    note = found.note(float(ledger.exchange_j.sum()), expected_s, late)
    return replace(made, schedule=schedule, reserve=drawn, notes=(*made.notes, note), drawn=True)


def neighbours(setting: Setting, times: int = 1) -> Scheme:
    """The scheme by which all devices mix with their neighbours, so many times.

    >>> from joulemesh import Scenario
    >>> neighbours(Setting(Scenario.preset("adaptive")), 2).rounds
    2
    """
    conditions = setting.ground.conditions
    options = conditions.options.model_copy(update={"gossip_rounds": times})
    return SCHEMES[NEIGHBOURS].ready(replace(conditions, options=options), Fit(), "")
