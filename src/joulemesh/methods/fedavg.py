"""Federated averaging: every device sends its model to a server, which sends the mean back.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017, arXiv:1602.05629. With all devices in every iteration.

The server stands in the middle of the square. Its links have the scenario's path loss, no
shadowing and no fading; it transmits with the devices' mean power, from the mains: its joules are
reported, and no battery pays them.

Where packets are lost, the mean is that of the models that arrive, and a device that does not hear
of it goes on with its own. A server that has heard nobody says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.base.registry import MCMAHAN
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.base import AS_PLANNED, Contender, FloatArray, IntArray, register, whole
from joulemesh.methods.walk import Act, Follow, Moment, drawn, walk
from joulemesh.training.from_plan import require_room
from joulemesh.world import World
from joulemesh.world.channel import Channel, path_gain
from joulemesh.world.devices import DeviceArrays
from joulemesh.world.links import Framing, LinkCosts, Packets
from joulemesh.world.topology import Graph
from joulemesh.world.traces import Traces

if TYPE_CHECKING:
    from joulemesh.methods.setting import Prices, Setting
    from joulemesh.planning.ground import Ground


def _star(devices: int) -> IntArray:
    """Links of every device to the server, which is device N."""
    return np.stack([np.arange(devices), np.full(devices, devices)], axis=1)


def star_route(devices: int, bits: float, who: IntArray | None = None) -> Route:
    """Everybody to the server, then the server to everybody."""
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


def star(setting: Setting, places_m: FloatArray | None = None) -> Ground:
    """The devices and their server, which is device N, with the links between them."""
    network, world = setting.scenario.network, setting.world
    devices, positions_m = world.devices, world.graph.positions_m if places_m is None else places_m
    away_m = np.linalg.norm(positions_m - network.area_m / 2, axis=1)
    nothing = np.zeros(1)  # the server trains nothing, and no battery feeds it
    with_server = DeviceArrays(
        round_samples=np.append(devices.round_samples, nothing),
        round_latency_s=np.append(devices.round_latency_s, nothing),
        round_energy_j=np.append(devices.round_energy_j, nothing),
        transmit_power_w=np.append(devices.transmit_power_w, devices.transmit_power_w.mean()),
        energy_budget_j=np.append(devices.energy_budget_j, nothing),
        idle_w=None if devices.idle_w is None else np.append(devices.idle_w, nothing),
        send_j_per_bit=_with_mean(devices.send_j_per_bit),
        receive_j_per_bit=_with_mean(devices.receive_j_per_bit),
        overhead_s=None if devices.overhead_s is None else np.append(devices.overhead_s, nothing),
        receive_power_w=_with_mean(devices.receive_power_w),
        message_j=_with_mean(devices.message_j),
        clocks=None if devices.clocks is None else devices.clocks.with_server(),
    )
    middle = np.full((1, 2), network.area_m / 2)
    graph = Graph(
        setting.devices + 1, _star(setting.devices), np.concatenate([positions_m, middle])
    )
    around = replace(
        world,
        devices=with_server,
        graph=graph,
        channel=Channel(path_gain(away_m, network)),
        packets=_packets(world),
        framing=_framing(world, with_server),
        measured=None,
        traces=Traces(),
        motion=None,
    )
    # All transmissions have the server in common, whoever else is within interference range.
    alone = {"network.interference_m": None} if network.interference_m is not None else {}
    return replace(setting.ground, scenario=setting.scenario.override(alone), world=around)


def _with_mean(each: FloatArray | None) -> FloatArray | None:
    """The devices' figures and the server's: their mean."""
    return None if each is None else np.append(each, each.mean())


def _framing(world: World, with_server: DeviceArrays) -> Framing | None:
    """What messages to the server and back cost besides their bits."""
    if world.framing is None:
        return None
    return replace(world.framing, message_j=with_server.message_j)


def _packets(world: World) -> Packets | None:
    """How packets are lost on the way to the server and back.

    Where every link has a measured probability, a device's is the mean of its links, by direction.
    """
    packets = world.packets
    if packets is None or not isinstance(packets.error, np.ndarray):
        return packets
    edges, count, error = world.graph.edges, world.graph.devices, packets.error
    links = np.bincount(edges.ravel(), minlength=count)
    sending = np.bincount(edges.ravel(), error.ravel(), count)
    hearing = np.bincount(edges.ravel(), error[:, ::-1].ravel(), count)
    return replace(packets, error=np.stack([sending, hearing], axis=1) / links[:, None])


def star_costs(setting: Setting) -> LinkCosts:
    """Price of a bit between each device and the server: forward is to the server."""
    return star(setting).costs(0)


def _sent(route: Route, ground: Ground) -> Ledger:
    priced = ground.pricer.route(route, ground.costs(0))
    return priced.served_by(ground.world.graph.devices - 1)


def _prices(setting: Setting, tau: int, ground: Ground, route: Route) -> Prices:
    one = charge(setting.world.devices, tau, _sent(route, ground))

    def prices(start: int, stop: int) -> Ledger:
        del start, stop
        return one

    return prices


def _follow(setting: Setting, tau: int) -> Follow:
    """Under traces: the server hears whoever takes part, and answers them."""
    motion, held = setting.world.motion, star(setting)

    def follow(now: Moment) -> Act:
        ground = held
        if motion is not None and now.snapshot is not None:
            ground = star(setting, motion.positions.held(now.snapshot))
        who = np.flatnonzero(now.who)
        route = star_route(now.devices, setting.work.model_bits, who)
        return Act(now.rounds(tau), _sent(route, ground), exact=True)

    return follow


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    tau = given.get("tau", setting.rounds)
    notes = ["has a server, in the middle of the square, whose joules no battery pays"]
    if setting.world.traces.given:
        return walk(setting, name, _follow(setting, tau)).contender(name, notes=notes)
    ground, route = star(setting), star_route(setting.devices, setting.work.model_bits)
    made = setting.contender(name, tau, _prices(setting, tau, ground, route), notes=notes)
    if setting.world.packets is None:
        return made
    up = route.step == 0

    def unsent(lost: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(~up & lost[up].all())  # a server that has heard nobody has nothing to say

    made, found = drawn(setting, made, lambda t: route, ground=ground, unsent=unsent)
    if not found.lost_messages.any():
        return made
    require_room(setting.scenario.training.chunk_iterations, setting.devices)
    lossy = replace(made.schedule, mixing=lambda t: star_mixing(setting.devices, found.lost[t]))
    return replace(made, schedule=lossy)


def star_mixing(devices: int, lost: IntArray) -> FloatArray:
    """What an exchange does if some messages of `star_route` are lost.

    The server's mean is that of the models that arrive; who does not hear of it keeps its own.
    """
    arrived = np.ones(2 * devices, np.bool_)
    arrived[lost] = False
    up, down = arrived[:devices], arrived[devices:]
    mean = up / max(1, up.sum())
    return np.where(down[:, None] & up.any(), mean, np.eye(devices))


register(
    "fedavg",
    _build,
    description="Every device sends its model to a server, which sends back the mean of those that "
    "arrive: federated averaging; no battery pays for the server.",
    citation=MCMAHAN,
    parameters={"tau": whole(meaning="rounds per iteration", default=AS_PLANNED)},
    main="tau",
)
