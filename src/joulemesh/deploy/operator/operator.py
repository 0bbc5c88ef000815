"""The operator's side: ask all devices of a fleet how they stand, and what they find on links."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar

from pydantic import TypeAdapter

from joulemesh.base.files import (
    JOURNAL,
    NODE_STATE,
    make_folder,
    parse_json,
    write_bytes,
)
from joulemesh.deploy.codec import write_record
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.device.model import CARD, CONFIG, FILE
from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.fleet.fleet import Fleet, Host
from joulemesh.deploy.fleet.pack import OPERATOR, fleet_hosts, read_roster
from joulemesh.deploy.messages import FleetRoster
from joulemesh.deploy.operator.standing import (
    JOURNAL_CALL,
    MODEL_CALL,
    PROBE,
    ROSTER,
    STATUS,
    TAIL,
    Probe,
    Standing,
    probe,
)
from joulemesh.deploy.record.history import JournalTail
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.gate import Caller, calling

Made = TypeVar("Made")

JOURNALS, MODELS = "journals", "models"
HERE = "this machine"
_PROBE_S = 600.0
_AT_ONCE = 32
_JOURNAL_NAME = re.compile(r"journal(-\d{6})?\.jsonl")
_MODEL_NAME = re.compile("|".join(map(re.escape, (FILE, CONFIG, CARD))))
_STANDING, _PROBES, _NUMBER = TypeAdapter(Standing), TypeAdapter(list[Probe]), TypeAdapter(int)
# A rate is measured by what the link should carry in half a second, within bounds.
_RATE_S, _LEAST, _MOST, _UNKNOWN = 0.5, 64 * 1024, 4 * 2**20, 512 * 1024


@dataclass(frozen=True)
class Operator:
    """Whoever holds the operator's certificate of a fleet."""

    folder: Path
    fleet: Fleet
    identity: Identity
    places: dict[str, Host]  # where devices are reached, by name; spare places included
    roster: FleetRoster

    @classmethod
    def load(cls, folder: Path) -> Self:
        fleet = Fleet.load(folder)
        hosts, roster = fleet_hosts(folder, fleet), read_roster(folder)
        return cls(folder, fleet, Identity.load(folder / OPERATOR), hosts, roster)

    @cached_property
    def hosts(self) -> dict[str, Host]:
        """Where the fleet's devices are reached, by name, without places that nobody has taken."""
        spare = set(self.fleet.spares).difference(self.roster.added)
        return {
            name: self.places[name] for i, name in enumerate(self.fleet.names) if i not in spare
        }

    async def enrol(self, roster: FleetRoster) -> tuple[str, int]:
        """Hand a roster to the first device that takes it; the others get it from that one."""
        text, failed = write_record(roster).encode(), list[str]()
        for host in self.hosts.values():
            try:
                with self.call(host) as caller:
                    return host.name, await caller.get(_NUMBER, ROSTER, text)
            except TransportError as error:
                failed.append(_with_remedy(error))
        raise TransportError(Reason.UNREACHABLE, "; ".join(failed))

    async def standings(self) -> list[Standing]:
        async def one(host: Host) -> Standing:
            return await self.standing(self.fleet.number(host.name))

        return await _each(one, self.hosts.values())

    async def standing(self, device: int) -> Standing:
        host = self.places[self.fleet.names[device]]
        silent = Standing(device, host.name)
        try:
            with self.call(host) as caller:
                found = await caller.get(_STANDING, STATUS)
            return replace(found, device=device, name=host.name)
        except TransportError as error:
            return replace(silent, trouble=_with_remedy(error))

    async def check(
        self,
        planned_bps: Callable[[str, str], float | None],
        *,
        rate: bool = True,
        done: Callable[[str], None] = lambda name: None,
    ) -> list[Probe]:
        hosts, digest = list(self.hosts.values()), self.fleet.digest
        direct = await asyncio.gather(*(probe(self.identity, HERE, one, digest) for one in hosts))
        found = [replace(one, trouble=_down(one)) for one in direct]

        async def from_device(host: Host) -> list[Probe]:
            seen = await self._from_device(host, planned_bps, rate=rate)
            done(host.name)
            return seen

        up = [host for host, one in zip(hosts, direct, strict=True) if one.version]
        each = await _each(from_device, up, 1 if rate else _AT_ONCE)
        return [*found, *chain.from_iterable(each)]

    async def _from_device(
        self, host: Host, planned_bps: Callable[[str, str], float | None], *, rate: bool
    ) -> list[Probe]:
        names = self.fleet.names
        near = [names[one] for one in self.fleet.neighbours(self.fleet.number(host.name))]
        near = [name for name in near if name in self.hosts]
        planned = {name: planned_bps(host.name, name) for name in near}
        sizes = {name: _size(bps) if rate else 0 for name, bps in planned.items()}
        try:
            with self.call(host) as caller:
                seen = await caller.get(_PROBES, PROBE, json.dumps(sizes).encode(), _PROBE_S)
        except TransportError as error:
            return [
                Probe(host.name, name, "", reachable=False, trouble=str(error)) for name in near
            ]
        known = {one.there: one for one in seen}
        lost = Probe(host.name, "", "", reachable=False, trouble=f"{host.name} does not say")
        return [
            replace(known.get(name, lost), here=host.name, there=name, planned_bps=planned[name])
            for name in near
        ]

    async def collect(self, *, models: bool = False) -> dict[str, str]:
        failed = {}

        async def one(host: Host) -> None:
            try:
                if models:
                    await self._collect_model(host)
                await self._collect(host, make_folder(self.folder / JOURNALS / host.name))
            except TransportError as error:
                failed[host.name] = _with_remedy(error)

        await _each(one, self.hosts.values())
        return failed

    async def _collect(self, host: Host, place: Path) -> None:
        have = {path.name: path.stat().st_size for path in journals_in(place)}
        with self.call(host) as caller:
            call = caller.stream(JOURNAL_CALL, json.dumps(have).encode(), _PROBE_S)
            async for name, data in _files(call, _JOURNAL_NAME, JOURNAL.now):
                write_bytes(place / name, data)

    async def _collect_model(self, host: Host) -> None:
        with self.call(host) as caller:
            call = caller.stream(MODEL_CALL, b"", _PROBE_S)
            found = {name: data async for name, data in _files(call, _MODEL_NAME, NODE_STATE.now)}
        if found.keys() >= {FILE, CONFIG}:
            place = make_folder(self.folder / MODELS / host.name)
            place.chmod(0o700)  # parameters can reveal samples
            for name, data in found.items():
                write_bytes(place / name, data)

    async def follow(self, tail: JournalTail) -> str:
        asked = json.dumps({"bytes": tail.size, "crc32": tail.crc32}).encode()
        try:
            with self.call(self.places[tail.name]) as caller:
                head = None
                async for piece in caller.stream(TAIL, asked):
                    if head is None:
                        head = parse_json(piece)
                        if head["from"] != tail.size:
                            tail.restart()
                    else:
                        tail.feed(piece)
        except TransportError as error:
            return _with_remedy(error)
        except (ValueError, TypeError, LookupError):
            return f"{tail.name} sends something that is no journal"
        return ""

    def call(self, host: Host) -> AbstractContextManager[Caller]:
        return calling(self.identity, host)


async def _each(
    work: Callable[[Host], Awaitable[Made]], hosts: Iterable[Host], at_once: int = _AT_ONCE
) -> list[Made]:
    """What work gives for every host, with so many under way at a time."""
    room = asyncio.Semaphore(at_once)

    async def one(host: Host) -> Made:
        async with room:
            return await work(host)

    return list(await asyncio.gather(*map(one, hosts)))


async def _files(
    call: AsyncIterator[bytes], names: re.Pattern[str], most_bytes: int
) -> AsyncIterator[tuple[str, bytes]]:
    """Names and contents of the files that a device sends."""
    name, data, size = "", bytearray(), 0
    async for piece in call:
        if len(data) == size:  # the line before a file
            if name:
                yield name, bytes(data)
            name, size = _announced(piece, names, most_bytes)
            data = bytearray()
        else:
            data += piece
            if len(data) > size:
                raise TransportError(Reason.MALFORMED, f"{name} is longer than announced")
    if name:
        yield name, bytes(data)


def _announced(piece: bytes, names: re.Pattern[str], most_bytes: int) -> tuple[str, int]:
    try:
        record = parse_json(piece)
        name, size = record["file"], record["bytes"]
        if names.fullmatch(name) and type(size) is int and 0 <= size <= most_bytes:
            return name, size
    except (ValueError, TypeError, LookupError):
        pass
    raise TransportError(Reason.MALFORMED, "it sends something else than was asked for")


def _size(planned_bps: float | None) -> int:
    if planned_bps is None:
        return _UNKNOWN
    return int(min(max(planned_bps * _RATE_S / 8, _LEAST), _MOST))


def _with_remedy(error: TransportError) -> str:
    down = error.reason is Reason.UNREACHABLE
    if not down:
        return str(error)
    again = "after its end it answers when it is started again"
    return f"{error.detail}; is `joulemesh node run` running there? {again}"


def _down(one: Probe) -> str:
    silent = not one.reachable and one.trouble.startswith(str(Reason.UNREACHABLE))
    return f"{one.trouble}; is `joulemesh node run` running there?" if silent else one.trouble
