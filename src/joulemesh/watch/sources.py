"""Where the page's figures come from: the operator's calls to all devices, or one device itself."""

from __future__ import annotations

__all__ = ["FleetSource", "NodeSource", "Source"]

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import history_of
from joulemesh.deploy.record.tail import FileTail, JournalTail
from joulemesh.errors import JoulemeshError
from joulemesh.watch.glimpse import Glimpse

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator

_RUN, _JOURNALS = "run", "journals"
_AT_ONCE = 32
_EVERY_S, _RELOAD_S = 0.5, 2.0


class Source(Protocol):
    """Tells what is known of all devices of a fleet."""

    def look(self) -> list[Glimpse]:
        """What is known now, in the order of the devices."""
        ...


class FleetSource:
    """Asks all devices by the operator's certificate; reads journals that lie on this machine.

    Every device is asked by itself, in a thread of their own, so that one that does not answer
    delays no other. To be used as a context.

    Args:
        folder: of the fleet.
    """

    def __init__(self, folder: Path) -> None:
        from joulemesh.deploy.operator.operator import Operator

        self._folder, self._operator = folder, Operator.load(folder)
        self._following = [
            _Following(folder, device, name)
            for device, name in enumerate(self._operator.fleet.names)
        ]
        self._loop = asyncio.new_event_loop()
        self._all: asyncio.Task[None] = self._loop.create_task(self._ask_all())
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> list[Glimpse]:
        """What the devices said last, and what they have written."""
        return [one.glimpse for one in self._following]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._all)
        self._loop.close()

    async def _ask_all(self) -> None:
        room = asyncio.Semaphore(_AT_ONCE)

        async def ask(one: _Following) -> None:
            while True:
                async with room:
                    await one.look(self._operator)
                await asyncio.sleep(_EVERY_S)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._reload())
            for one in self._following:
                group.create_task(ask(one))

    async def _reload(self) -> None:
        """Take up new addresses: fleets on one machine get other ports at each start."""
        while True:
            await asyncio.sleep(_RELOAD_S)
            with suppress(JoulemeshError):  # it is being written
                self._operator = type(self._operator).load(self._folder)


class _Following:
    """What is known of one device, from its answers and its journal."""

    def __init__(self, folder: Path, device: int, name: str) -> None:
        near = (folder / DEVICES / name / _RUN, folder / _JOURNALS / name)
        self._near = [FileTail(place, device, name) for place in near]
        self._far = JournalTail(device, name)
        nothing = history_of((), device, name)
        self.glimpse = Glimpse(Standing(device, name), nothing, answers=False, asked=False)

    async def look(self, operator: Operator) -> None:
        """Ask it, and read what it has written since the last time."""
        try:
            self.glimpse = await self._looked(operator)
        except (OSError, JoulemeshError) as error:  # a journal on this machine that cannot be read
            self.glimpse = replace(self.glimpse, answers=False, asked=True, why=str(error))

    async def _looked(self, operator: Operator) -> Glimpse:
        before = self.glimpse
        said = await operator.standing(before.standing.device)
        answers, why = bool(said.phase), said.trouble if not said.phase else ""
        tails: list[JournalTail] = [tail for tail in self._near if tail.look()]
        if not tails:
            tails = [self._far]
            if answers:
                why = await operator.follow(self._far)
        return Glimpse(
            said if answers else before.standing,
            max((tail.history() for tail in tails), key=lambda one: len(one.iterations)),
            answers,
            time.time() if answers else before.heard_at,
            why,
        )


class NodeSource:
    """What one device knows: itself, and of the others who is a member.

    Args:
        folder: the device's.
        standing: gives how it stands.
    """

    def __init__(self, folder: Path, standing: Callable[[], Standing]) -> None:
        self._standing, self._names = standing, Fleet.load(folder).names
        own = standing()
        self._tail = FileTail(folder / _RUN, own.device, self._names[own.device])

    def look(self) -> list[Glimpse]:
        """How this device stands, and that the others are not seen from here."""
        own = self._standing()
        self._tail.look()
        unseen = f"cannot be seen from {self._names[own.device]}"
        return [
            Glimpse(replace(own, name=name), self._tail.history(), heard_at=time.time())
            if device == own.device
            else Glimpse(
                Standing(device, name), history_of((), device, name), answers=False, why=unseen
            )
            for device, name in enumerate(self._names)
        ]
