"""Lost packets of methods, drawn as a plan's are."""

from __future__ import annotations

__all__ = ["arrivals", "chances", "drawn", "neighbours", "with_losses"]

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.patterned import NEIGHBOURS
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Fit, Scheme
from joulemesh.methods.base import Contender, FloatArray
from joulemesh.methods.setting import Setting
from joulemesh.planning.drawing import Course, Outcome, draw
from joulemesh.planning.ground import Ground
from joulemesh.registries import SCHEMES
from joulemesh.scenario.scenario import rounded_to
from joulemesh.setup.from_plan import schedule_by_messages
from joulemesh.tolerance import within

BoolArray = NDArray[np.bool_]


def with_losses(setting: Setting, made: Contender, scheme_at: Callable[[int], Scheme]) -> Contender:
    """A method as its exchanges turn out where packets are lost or rounded; otherwise itself.

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
    wire = rounded_to(setting.scenario.network.bits_per_parameter)
    if setting.world.packets is None and not wire:
        return made
    ground, n, held = setting.ground, made.schedule.iterations, {}

    def route(t: int) -> Route | None:
        if not made.schedule.exchanged[t]:
            return None
        scheme = scheme_at(t)
        key = id(scheme) if not (scheme.random or setting.fading) else (id(scheme), t)
        if key not in held:
            held[key] = scheme.route(ground.seen_costs(t), t)
        return held[key]

    turned_out, lost = made, None
    if setting.world.packets is not None:
        turned_out, found = drawn(setting, made, route)
        lost = found if found.lost_messages.any() else None
    if lost is None and not wire:
        return turned_out
    schedule = schedule_by_messages(
        made.schedule,
        [route(t) for t in range(n)],
        scheme_at,
        lost,
        chunk_iterations=setting.scenario.training.chunk_iterations,
        wire=wire,
    )
    return replace(turned_out, schedule=schedule)


def drawn(
    setting: Setting,
    made: Contender,
    route: Callable[[int], Route | None],
    *,
    ground: Ground | None = None,
    unsent: Callable[[BoolArray], BoolArray] | None = None,
) -> tuple[Contender, Outcome]:
    """A method with the joules and seconds that are drawn, and which messages are lost.

    What a lost message does to the parameters is the method's own matter.

    Args:
        setting: the terms of the comparison; its packets are lost.
        made: with expected joules and seconds.
        route: what is sent in an iteration (from 0); None where nothing is.
        ground: the devices and links that the messages take, if not those of the setting. A device
            more is a server, whose joules no battery pays.
        unsent: see `Course`.

    Returns:
        The method, and what was drawn.
    """
    packets, ledger, count = setting.world.packets, made.reserve, setting.devices
    assert packets is not None
    ground, n = ground or setting.ground, made.schedule.iterations
    served = ground.world.graph.devices > count
    spare_j = np.where(made.leftover_j() < 0, np.inf, made.leftover_j())[None]

    active = made.schedule.active
    exchange = replace(ledger, compute_j=np.zeros_like(ledger.compute_j), idle_j=0 * ledger.idle_j)
    if served:
        exchange, active = exchange.with_server(), np.broadcast_to(True, (n, count + 1))
        spare_j = np.append(spare_j, [[np.inf]], axis=1)
    course = Course(ground, route, exchange, ledger.seconds, active, spare_j, unsent=unsent)
    found = draw(course, packets)
    sent, idle_w = found.exchange, setting.world.devices.idle_w
    sent = sent.served_by(count) if served else sent
    turned_out = replace(sent, compute_j=ledger.compute_j, idle_j=ledger.idle_j)
    if found.awake_s is not None and idle_w is not None:
        turned_out = replace(turned_out, idle_j=idle_w * found.awake_s[:, :count])
    seconds = turned_out.seconds
    deadline_s = setting.scenario.budget.deadline_s
    late = 0 if deadline_s is None else int((~within(deadline_s, seconds)).sum())
    expected_s = float(
        sum(
            ground.pricer.beside(one, ground.costs(t)).seconds[0]
            for t in range(n)
            if (one := route(t)) is not None
        )
    )
    note = found.note(exchange.total_j, expected_s, late)
    notes = (*made.notes, note)
    return replace(made, reserve=turned_out, notes=notes, drawn=True), found


def arrivals(found: Outcome, shape: tuple[int, ...]) -> Callable[[int], BoolArray] | None:
    """Which messages of a method's own exchange arrive, as `Schedule.arrived` wants it.

    Args:
        found: what was drawn.
        shape: of the messages of an exchange, which are as many in every iteration.

    Returns:
        A function of the iteration (from 0) that gives bool of that shape; None if all arrive.
    """
    if not found.lost_messages.any():
        return None

    def arrived(t: int) -> BoolArray:
        there = np.ones(shape, np.bool_)
        there.reshape(-1)[found.lost[t]] = False
        return there

    return arrived


def chances(setting: Setting, bits: float) -> FloatArray:
    """Probability that a message arrives, as far as it is known before the first iteration.

    Args:
        setting: the terms of the comparison.
        bits: of the message.

    Returns:
        float64 [E, 2]: on every link, forward and backward; 1 where no packet is lost.

    >>> from joulemesh import Scenario
    >>> lossy = {"network.packet_error": 0.5, "network.tries": 2, "network.packet_bits": 1000}
    >>> setting = Setting(Scenario.preset("adaptive").override(lossy))
    >>> float(chances(setting, 2000.0).min())  # two packets
    0.5625
    """
    packets, world = setting.world.packets, setting.world
    each = np.full((len(world.graph.edges), 2), bits)
    if packets is None:
        return np.ones_like(each)
    return packets.arrival(each, setting.ground.errors_forecast)


def neighbours(setting: Setting, times: int = 1) -> Scheme:
    """The scheme by which all devices mix with their neighbours, so many times.

    >>> from joulemesh import Scenario
    >>> neighbours(Setting(Scenario.preset("adaptive")), 2).rounds
    2
    """
    conditions = setting.ground.conditions
    options = conditions.options.model_copy(update={"gossip_rounds": times})
    return SCHEMES[NEIGHBOURS].ready(replace(conditions, options=options), Fit(), "")
