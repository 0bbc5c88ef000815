"""One device of a fleet measures its links, and lets its neighbours measure theirs."""

from __future__ import annotations

__all__ = ["link_service", "listen_in_fleet", "measure_links"]

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from joulemesh.deploy.fleet.hosts import HOSTS, require_addresses
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.links.figures import Rule, Timed
from joulemesh.deploy.links.service import LinkService, Order
from joulemesh.deploy.links.transfers import time_way
from joulemesh.deploy.operator.probing import call_error
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, TransportError
from joulemesh.deploy.transport.channel import open_channel
from joulemesh.deploy.transport.gate import Peer
from joulemesh.deploy.wire import Terms, wire_type

import grpc.aio  # isort: skip  (channel prepares it, and says what to install where it is missing)


def link_service(port: Any, pack: DevicePack) -> LinkService:
    """What serves timed transfers on a device's port: to its neighbours, and to the operator.

    Args:
        port: the device's transport.
        pack: its folder.
    """

    def permit(peer: Peer) -> None:
        if peer.role != "operator" and peer.device not in pack.neighbours:
            raise TransportError(
                Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {pack.name}"
            )

    async def measure(order: Order) -> list[Timed]:
        return await measure_links(pack, order)

    model_bytes = int(-(-pack.fleet.work.model_bits // 8))
    return LinkService(port, pack.name, permit, most_bytes=model_bytes, measure=measure)


async def measure_links(pack: DevicePack, order: Order) -> list[Timed]:
    """Time transfers from a device to its neighbours, one link after another or all at once.

    Args:
        pack: the device's folder.
        order: what to measure.

    Returns:
        One record for each neighbour that was named; no failure of the network is raised.
    """
    near = {pack.fleet.names[one]: one for one in pack.neighbours}
    strange = next((name for name in order.to if name not in near), None)
    if strange is not None:
        raise TransportError(
            Reason.NOT_A_NEIGHBOUR, f"{strange:.80} is no neighbour of {pack.name}"
        )
    if order.rule.together:
        timed = (_to_neighbour(pack, near[name], order.rule) for name in order.to)
        return list(await asyncio.gather(*timed))
    return [await _to_neighbour(pack, near[name], order.rule) for name in order.to]


async def _to_neighbour(pack: DevicePack, device: int, rule: Rule) -> Timed:
    host = pack.hosts[device]
    identity, address = pack.identity, Address(host.address, host.port)
    ends = (pack.name, host.name)
    channel = open_channel(identity, host.name, address)
    try:
        return await time_way(channel, address, "push", rule, ends)
    except TransportError as error:
        return Timed(*ends, trouble=str(error))
    except (grpc.aio.AioRpcError, ValidationError) as error:
        fault = await call_error(identity, host.name, address, error)
        return Timed(*ends, trouble=str(fault))
    finally:
        await channel.close()


async def listen_in_fleet(
    pack: DevicePack, within_s: float, refused: Callable[[Refusal], None]
) -> bool:
    """Let the operator and the neighbours measure this device's links, without running a plan.

    Args:
        pack: the device's folder.
        within_s: seconds after which it ends.
        refused: told of everybody who is refused.

    Returns:
        Whether the operator has said that it is over, before the time was up.

    Raises:
        JoulemeshError: an address is missing, or this device cannot listen there.
    """
    from joulemesh.deploy.transport.grpc import GrpcTransport

    fleet = pack.fleet
    named = {host.name: host for host in pack.hosts.values()}
    require_addresses(pack.folder / HOSTS, named, named)
    bits = fleet.scenario.network.bits_per_parameter
    transport = GrpcTransport(
        pack.identity,
        Roster(pack.device, fleet.names, {}),  # nobody's messages are taken
        Terms(fleet.id, fleet.digest, fleet.work.parameters, wire_type(bits)),
        pack.listens_on,
        refused=refused,
    )
    service = link_service(transport, pack)
    transport.add_handler(service)
    try:
        await transport.start(lambda sender, message: None)
        async with asyncio.timeout(within_s):
            await service.done.wait()
        return True
    except TimeoutError:
        return False
    finally:
        await transport.close()
