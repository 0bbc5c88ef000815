"""A device's port: its neighbours' messages, the operator's questions, and a last word."""

from __future__ import annotations

__all__ = ["farewell", "tcp_transport"]

import asyncio
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from joulemesh.deploy.fleet.hosts import HOSTS, Host, fill_in, require_addresses
from joulemesh.deploy.messages import Given, Message
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.transport import Address, Roster, Transport, TransportError
from joulemesh.deploy.wire import Terms, wire_type
from joulemesh.planning.ground import Ground

if TYPE_CHECKING:
    from joulemesh.deploy.device.device import Device

_FOLLOWED_S, _FAREWELL_S = 30.0, 20.0  # an operator who copies the journal does so often
_LATE_S = 300.0


def tcp_transport(device: Device, *, ended: bool = False) -> Transport:
    """The device's neighbours; on the same port the operator may ask how it stands.

    Args:
        device: whose port it is.
        ended: has the device ended? It then answers neighbours only if it has what they may lack.
    """
    from joulemesh.deploy.links.sessions import link_service
    from joulemesh.deploy.operator.control import Control
    from joulemesh.deploy.transport.tcp import TcpTransport

    pack, fleet = device.pack, device.pack.fleet
    places = {one: Address(host.address, host.port) for one, host in pack.hosts.items()}
    own = places.pop(pack.device)
    require_addresses(pack.folder / HOSTS, {pack.name: pack.hosts[pack.device]}, [pack.name])

    def met(neighbour: int, address: Address) -> None:
        fill_in(pack.folder / HOSTS, [Host(fleet.names[neighbour], *address)])

    silent = ended and not device.has_last
    made = TcpTransport(
        pack.identity,
        Roster(pack.device, fleet.names, {} if silent else places, own),
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

    device.control = Control(pack, standing, device.folder, device.settle, device.model)
    device.control.enrol = None if ended else device.enrol
    made.calls.update({**device.control.calls, **link_service(pack).calls})
    return made


def _rates_bps(ground: Ground, device: int) -> dict[int, float]:
    """The rates of the links to a device's neighbours, as forecast."""
    found = {}
    there_bps, back_bps = ground.forecast.payload_bps()
    for k, (i, j) in enumerate(ground.world.graph.edges.tolist()):
        if device in (i, j):
            found[i + j - device] = float(there_bps[k] if device == i else back_bps[k])
    return found


async def farewell(device: Device, linger_s: float | None, say: Callable[[str], None]) -> None:
    """After a device's end, serve what it ended with.

    A neighbour that is not known to have finished may still come for the last parameters, and the
    operator for the journal and the model. An operator who has been copying the journal all along
    is waited for in any case, for a short while.

    Args:
        device: that has ended.
        linger_s: seconds to wait at most; None: long enough for neighbours that may come late, and
            not at all if there is none.
        say: called with lines for the user.
    """
    before = device.control
    if before is None:  # it was not driven over its port
        return
    late = device.may_come_late()
    followed = time.monotonic() - before.collected_at < _FOLLOWED_S
    asked_s = (_LATE_S if late else 0.0) if linger_s is None else linger_s
    within_s = max(asked_s, _FAREWELL_S if followed else 0.0)
    if not within_s:
        if linger_s is None:
            say(
                "joulemesh deploy collect and report get model and journal when it is started again"
            )
        return
    transport, loop = tcp_transport(device, ended=True), asyncio.get_running_loop()
    assert device.control is not None
    collected = followed or bool(linger_s)  # whether to wait for the operator
    waits = [device.control.collected] if collected else []
    serving = _Serving(device, transport, late)
    waits += [serving.done] if late else []
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await transport.start(serving.received)
    names = device.pack.fleet.names
    whom = [names[one] for one in late] + (["the operator"] if collected else [])
    say(f"serves its model to {' and '.join(whom)} for up to {within_s:g} s; Ctrl-C ends it")

    async def nobody_left() -> None:
        for one in waits:
            await one.wait()

    tasks = [asyncio.create_task(nobody_left()), asyncio.create_task(stopped.wait())]
    try:
        await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await serving.close()
        await transport.close()


class _Serving:
    """Answers neighbours that come late, until each has the last parameters."""

    def __init__(self, device: Device, transport: Transport, late: Collection[int]) -> None:
        self._served = device.served() if device.has_last else None
        self._transport, self._late = transport, set(late)
        self._within_s = device.pack.fleet.settings.patience_s
        self._sending: set[asyncio.Task[None]] = set()
        self.done = asyncio.Event()

    def received(self, sender: int, message: Message) -> None:
        for answer in self._served.answer(sender, message) if self._served else ():
            task = asyncio.ensure_future(self._send(sender, answer))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, to: int, message: Message) -> None:
        try:
            await self._transport.send(to, message, self._within_s)
        except TransportError:
            return  # it asks again
        if isinstance(message, Given):
            self._late.discard(to)
            if not self._late:
                self.done.set()

    async def close(self) -> None:
        """Let what is on its way arrive."""
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=2.0)
