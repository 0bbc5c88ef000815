"""A device's port: its neighbours' messages, the operator's questions, and a last word."""

from __future__ import annotations

__all__ = ["farewell", "grpc_transport"]

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from joulemesh.deploy.fleet.hosts import HOSTS, Host, fill_in, require_addresses
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.transport import Address, Roster, Transport
from joulemesh.deploy.wire import Terms, wire_type
from joulemesh.planning.ground import Ground

if TYPE_CHECKING:
    from joulemesh.deploy.device.device import Device

_FOLLOWED_S, _FAREWELL_S = 30.0, 20.0  # an operator who copies the journal does so often


def grpc_transport(device: Device, *, ended: bool = False) -> Transport:
    """The device's neighbours over gRPC; on the same port the operator may ask how it stands.

    Args:
        device: whose port it is.
        ended: has the device ended, so that it takes no more messages?
    """
    from joulemesh.deploy.links.neighbours import link_service
    from joulemesh.deploy.operator.control import Control
    from joulemesh.deploy.transport.grpc import GrpcTransport

    pack, fleet = device.pack, device.pack.fleet
    places = {one: Address(host.address, host.port) for one, host in pack.hosts.items()}
    own = places.pop(pack.device)
    require_addresses(pack.folder / HOSTS, {pack.name: pack.hosts[pack.device]}, [pack.name])

    def met(neighbour: int, address: Address) -> None:
        fill_in(pack.folder / HOSTS, [Host(fleet.names[neighbour], *address)])

    made = GrpcTransport(
        pack.identity,
        Roster(pack.device, fleet.names, {} if ended else places, own),
        Terms(
            fleet.id,
            fleet.digest,
            fleet.work.parameters,
            wire_type(fleet.scenario.network.bits_per_parameter),
        ),
        pack.listens_on,
        refused=device.refused,
        met=met,
        rates_bps=_rates_bps(device.planner.ground, pack.device),
    )

    def standing() -> Standing:
        return replace(device.standing(), phase="ended") if ended else device.standing()

    device.control = Control(made, pack, standing, device.folder)
    made.add_handler(device.control)
    made.add_handler(link_service(made, pack))
    return made


def _rates_bps(ground: Ground, device: int) -> dict[int, float]:
    """The rates of the links to a device's neighbours, as forecast."""
    found = {}
    there_bps, back_bps = ground.forecast.payload_bps()
    for k, (i, j) in enumerate(ground.world.graph.edges.tolist()):
        if device in (i, j):
            found[i + j - device] = float(there_bps[k] if device == i else back_bps[k])
    return found


async def farewell(device: Device, linger_s: float, say: Callable[[str], None]) -> None:
    """After a device's end, let the operator copy the rest of its journal.

    An operator who has been copying it all along is waited for in any case, for a short while.

    Args:
        device: that has ended.
        linger_s: seconds to wait for the operator at most.
        say: called with lines for the user.
    """
    before = device.control
    if before is None:  # it was not driven over gRPC
        return
    followed = time.monotonic() - before.collected_at < _FOLLOWED_S
    within_s = max(linger_s, _FAREWELL_S if followed else 0.0)
    if not within_s:
        return
    transport = grpc_transport(device, ended=True)
    assert device.control is not None
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await transport.start(lambda sender, message: None)
    say(f"waiting {within_s:g} s for the operator to copy the journal; Ctrl-C ends it")
    waits = [asyncio.ensure_future(one.wait()) for one in (device.control.collected, stopped)]
    try:
        await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        await transport.close()
