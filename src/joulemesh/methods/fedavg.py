"""Federated averaging: every device sends its model to a server, which sends the mean back.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017, arXiv:1602.05629. With all devices in every iteration.

The server stands in the middle of the square. Its links have the scenario's path loss, no
shadowing and no fading; it transmits with the devices' mean power, from the mains: its joules are
reported, and no battery pays them.
"""

from __future__ import annotations

__all__ = ["star_costs", "star_route"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.bibliography import MCMAHAN
from joulemesh.methods.base import Contender, FloatArray, IntArray, Ledger
from joulemesh.methods.moment import Act, Follow, Moment, Sent
from joulemesh.methods.parameters import AS_PLANNED, whole
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Prices, Setting
from joulemesh.methods.walk import walk
from joulemesh.planning.pricing.route import exchange_latency_s, exchange_parts_j
from joulemesh.world.channel import path_gain
from joulemesh.world.links import LinkCosts, link_costs


def _star(devices: int) -> IntArray:
    """Links of every device to the server, which is device N."""
    return np.stack([np.arange(devices), np.full(devices, devices)], axis=1)


def star_route(devices: int, bits: float, who: IntArray | None = None) -> Route:
    """Everybody to the server, then the server to everybody.

    Args:
        devices: number N of devices; the server is device N.
        bits: of a model.
        who: only these devices; all of them unless given.

    >>> list(star_route(2, 8.0).messages())
    [(0, 0, 2, 8.0), (0, 1, 2, 8.0), (1, 2, 0, 8.0), (1, 2, 1, 8.0)]
    """
    links = np.arange(devices) if who is None else who
    count = len(links)
    return (
        Route.build(
            "star",
            edges=_star(devices)[links],
            edge=np.tile(np.arange(count), 2),
            forward=np.repeat([True, False], count),
            step=np.repeat([0, 1], count),
            bits=bits,
            repeats=1,
            uses=2,
        )
        .on_links(links)
        .for_all()
    )


def star_costs(setting: Setting, positions_m: FloatArray | None = None) -> LinkCosts:
    """Price of a bit between each device and the server: forward is to the server.

    Args:
        setting: the terms of the comparison.
        positions_m: [N, 2]: where devices are; where they begin unless given.
    """
    network, world = setting.scenario.network, setting.world
    places_m = world.graph.positions_m if positions_m is None else positions_m
    away_m = np.linalg.norm(places_m - network.area_m / 2, axis=1)
    power_w = world.devices.transmit_power_w
    return link_costs(
        _star(setting.devices),
        path_gain(away_m, network),
        np.append(power_w, power_w.mean()),
        world.bandwidth_hz,
        world.noise_w_per_hz,
        world.max_rate_bps,
        send_j=_with_server(world.devices.send_j_per_bit),
        receive_j=_with_server(world.devices.receive_j_per_bit),
    )


def _with_server(each: FloatArray | None) -> FloatArray | None:
    """The devices' figures and the server's: their mean."""
    return None if each is None else np.append(each, each.mean())


def _sent(setting: Setting, route: Route, costs: LinkCosts) -> Sent:
    """What the messages to the server and back cost."""
    options, nodes = setting.scenario.plan, setting.devices + 1
    # All transmissions have the server in common, whoever else is within interference range.
    medium = replace(setting.pricer.medium, reach=None)
    joules, heard = exchange_parts_j(route, costs, nodes, options.pays, medium)
    seconds = exchange_latency_s(
        route, costs, nodes, options.clock, medium, setting.work.model_bits
    )
    received = np.zeros(setting.devices) if heard is None else heard[:-1]
    return Sent(joules[:-1], received, seconds, setting.pricer.bits(route), float(joules[-1]))


def _prices(setting: Setting, tau: int) -> Prices:
    route = star_route(setting.devices, setting.work.model_bits)
    sent = _sent(setting, route, star_costs(setting))
    one = setting.ledger(
        tau,
        sent.exchange_j[None],
        np.array([sent.seconds]),
        np.array([sent.bits]),
        server_j=np.array([sent.server_j]),
        receive_j=sent.receive_j[None] if sent.receive_j.any() else None,
    )

    def prices(start: int, stop: int) -> Ledger:
        del start, stop
        return one

    return prices


def _follow(setting: Setting, tau: int) -> Follow:
    """Under traces: the server hears whoever takes part, and answers them."""
    motion, held = setting.world.motion, star_costs(setting)

    def follow(now: Moment) -> Act:
        costs = held
        if motion is not None and now.snapshot is not None:
            costs = star_costs(setting, motion.positions.held(now.snapshot))
        who = np.flatnonzero(now.who)
        route = star_route(now.devices, setting.work.model_bits, who)
        return Act(now.rounds(tau), _sent(setting, route, costs), exact=True)

    return follow


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    tau = given.get("tau", setting.rounds)
    notes = ["has a server, in the middle of the square, whose joules no battery pays"]
    if setting.world.traces.given:
        return walk(setting, name, _follow(setting, tau)).contender(name, notes=notes)
    return setting.contender(name, tau, _prices(setting, tau), notes=notes)


register(
    "fedavg",
    _build,
    description="Every device sends its model to a server, which sends the mean back: federated "
    "averaging; no battery pays for the server.",
    citation=MCMAHAN,
    parameters={"tau": whole(meaning="rounds per iteration", default=AS_PLANNED)},
    main="tau",
)
