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
from joulemesh.methods.parameters import AS_PLANNED, whole
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Prices, Setting
from joulemesh.planning.pricing.route import exchange_latency_s, exchange_parts_j
from joulemesh.world.channel import path_gain
from joulemesh.world.links import LinkCosts, link_costs


def _star(devices: int) -> IntArray:
    """Links of every device to the server, which is device N."""
    return np.stack([np.arange(devices), np.full(devices, devices)], axis=1)


def star_route(devices: int, bits: float) -> Route:
    """Everybody to the server, then the server to everybody.

    >>> list(star_route(2, 8.0).messages())
    [(0, 0, 2, 8.0), (0, 1, 2, 8.0), (1, 2, 0, 8.0), (1, 2, 1, 8.0)]
    """
    return Route.build(
        "star",
        edges=_star(devices),
        edge=np.tile(np.arange(devices), 2),
        forward=np.repeat([True, False], devices),
        step=np.repeat([0, 1], devices),
        bits=bits,
        repeats=1,
        uses=2,
    ).for_all()


def star_costs(setting: Setting) -> LinkCosts:
    """Price of a bit between each device and the server: forward is to the server."""
    network, world = setting.scenario.network, setting.world
    away_m = np.linalg.norm(world.graph.positions_m - network.area_m / 2, axis=1)
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


def _prices(setting: Setting, tau: int) -> Prices:
    options, nodes = setting.scenario.plan, setting.devices + 1
    bits = setting.work.model_bits
    route, costs = star_route(setting.devices, bits), star_costs(setting)
    # All transmissions have the server in common, whoever else is within interference range.
    medium = replace(setting.pricer.medium, reach=None)
    joules, heard = exchange_parts_j(route, costs, nodes, options.pays, medium)
    seconds = exchange_latency_s(route, costs, nodes, options.clock, medium, bits)
    one = setting.ledger(
        tau,
        joules[None, :-1],
        np.array([seconds]),
        np.array([setting.pricer.bits(route)]),
        server_j=joules[-1:],
        receive_j=None if heard is None else heard[None, :-1],
    )

    def prices(start: int, stop: int) -> Ledger:
        del start, stop
        return one

    return prices


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    tau = given.get("tau", setting.rounds)
    notes = ["has a server, in the middle of the square, whose joules no battery pays"]
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
