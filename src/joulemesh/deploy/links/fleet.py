"""The links of a fleet, measured by its devices as the operator asks: alone, then all at once."""

from __future__ import annotations

__all__ = ["link_service", "listen_in_fleet", "measure_fleet", "measure_links", "tell_all"]

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from joulemesh.deploy.fleet.hosts import HOSTS, require_addresses
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.links.figures import LinkFigures, Rule, Timed
from joulemesh.deploy.links.pairs import serve_until_done
from joulemesh.deploy.links.transfers import MEASURE, LinkService, Order, tell_done, time_way
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, TransportError
from joulemesh.deploy.transport.calls import Caller
from joulemesh.deploy.transport.connection import Endpoint
from joulemesh.deploy.transport.gate import Peer
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.wire import Terms, wire_type

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator

_TIMED = TypeAdapter(list[Timed])
_START_S = 1.0  # in which every device has heard of what is to be measured at once
_ANSWER_S = 1200.0


def link_service(pack: DevicePack) -> LinkService:
    """What serves timed transfers on a device's port: to its neighbours, and to the operator."""

    def permit(peer: Peer) -> None:
        if peer.role != "operator" and peer.device not in pack.neighbours:
            raise TransportError(
                Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {pack.name}"
            )

    async def measure(order: Order) -> list[Timed]:
        return await measure_links(pack, order)

    model_bytes = int(-(-pack.fleet.work.model_bits // 8))
    return LinkService(pack.name, permit, most_bytes=model_bytes, measure=measure)


async def measure_links(pack: DevicePack, order: Order) -> list[Timed]:
    """Time transfers from a device to its neighbours, one link after another or all at once.

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
    ends = (pack.name, host.name)
    caller = Caller(Endpoint(pack.identity, host.name, Address(host.address, host.port)))
    try:
        return await time_way(caller, "push", rule, ends)
    except TransportError as error:
        return Timed(*ends, trouble=str(error))
    finally:
        caller.close()


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
    fleet = pack.fleet
    named = {host.name: host for host in pack.hosts.values()}
    require_addresses(pack.folder / HOSTS, named, named)
    bits = fleet.scenario.network.bits_per_parameter
    roster = Roster(pack.device, fleet.names, {})  # nobody's messages are taken
    terms = Terms(fleet.id, fleet.digest, fleet.work.parameters, wire_type(bits))
    transport = TcpTransport(pack.identity, roster, terms, pack.listens_on, refused=refused)
    return await serve_until_done(transport, link_service(pack), within_s)


async def measure_fleet(
    operator: Operator,
    links: Iterable[tuple[int, int]],
    rule: Rule,
    *,
    planned: Iterable[tuple[int, int]] | None = None,
    modes: Sequence[str] = ("alone", "together"),
    done: Callable[[str], None] = lambda words: None,
) -> list[LinkFigures]:
    """Have the devices of a fleet measure links between them.

    Args:
        operator: of the fleet.
        links: pairs of devices; both directions are measured, one by one.
        rule: how each direction is measured.
        planned: the links that are measured all at once; all of them unless given.
        modes: ``"alone"``, ``"together"`` or both.
        done: told of each step.

    Returns:
        One record for each direction, in their order; those of silent devices say why.
    """
    pairs = _both_ways(links)
    busy = pairs if planned is None else _both_ways(planned)
    alone, together = dict[tuple[int, int], Timed](), dict[tuple[int, int], Timed]()
    if "alone" in modes:
        for i, near in _by_sender(pairs).items():  # in turn, so that no two share the air
            alone.update(await _ordered(operator, i, near, rule))
            done(f"{operator.fleet.names[i]} has measured its links one by one")
    if "together" in modes:
        all_rule = replace(rule, together=True)
        turns = _by_sender(busy).items()
        waits = (_ordered(operator, i, near, all_rule, _START_S) for i, near in turns)
        for one in await asyncio.gather(*waits):
            together.update(one)
        done(f"{len(busy):,} directions of links were measured all at once")
    wanted = sorted(alone.keys() | together.keys())
    return [LinkFigures(*pair, alone.get(pair), together.get(pair)) for pair in wanted]


def _both_ways(links: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Every direction of links, once.

    >>> _both_ways([(1, 0), (0, 1), (1, 2)])
    [(0, 1), (1, 0), (1, 2), (2, 1)]
    """
    return sorted({one for i, j in links for one in ((i, j), (j, i))})


def _by_sender(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for i, j in pairs:
        found[i].append(j)
    return found


async def _ordered(
    operator: Operator, device: int, near: Sequence[int], rule: Rule, wait_s: float = 0.0
) -> dict[tuple[int, int], Timed]:
    """What one device finds on its links."""
    names = operator.fleet.names
    host = operator.places[names[device]]
    order = Order(rule, tuple(names[one] for one in near), wait_s)
    try:
        with operator.call(host) as caller:
            request = json.dumps(asdict(order)).encode()
            timed = await caller.get(_TIMED, MEASURE, request, _ANSWER_S)
            seen = {one.there: one for one in timed}
    except TransportError as error:
        seen = {}
        lost = Timed(names[device], "", trouble=f"{error}; is it listening?")
    else:
        lost = Timed(names[device], "", trouble=f"{names[device]} does not say")
    return {
        (device, one): replace(seen.get(names[one], lost), here=names[device], there=names[one])
        for one in near
    }


async def tell_all(operator: Operator) -> None:
    """Tell all devices that nothing more will be measured: those that only listened end."""

    async def tell(name: str) -> None:
        with suppress(TransportError), operator.call(operator.places[name]) as caller:
            await tell_done(caller)

    await asyncio.gather(*(tell(name) for name in operator.fleet.names))
