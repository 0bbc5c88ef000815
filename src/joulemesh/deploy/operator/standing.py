"""How a fleet stands, and what one end of a link finds out about the other."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from joulemesh._version import __version__
from joulemesh.base.errors import JoulemeshError
from joulemesh.base.files import JOURNAL, NODE_STATE, open_bounded, parse_json
from joulemesh.deploy.codec import read_claim
from joulemesh.deploy.device.journal import JOURNAL as IN_USE
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.device.model import CARD, CONFIG, FILE
from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.fleet.fleet import Host
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.links.transfers import LEAST_LIMIT, Hello, push
from joulemesh.deploy.messages import FleetRoster
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.gate import Answer, Caller, Peer, calling, checked, question


@dataclass(frozen=True)
class Standing:
    """How one device stands at the moment."""

    device: int
    name: str  # what the roster calls it
    phase: str = ""  # what it is doing, in a word of `messages.Phase`; empty if it does not answer
    view: int = 0  # the newest view that it has installed
    iteration: int = 0  # the last that it has committed
    iterations: int = 0  # how many the plan has
    spent_j: float = 0.0  # joules metered so far
    planned_j: float = 0.0  # joules that the plan gives it up to ``iteration``
    battery_j: float = 0.0  # joules that it may spend in all
    elapsed_s: float = 0.0  # seconds since it began
    planned_s: float = 0.0  # seconds that the plan takes up to ``iteration``
    waiting: tuple[str, ...] = ()  # names of the devices for whose messages it waits
    accuracy: float | None = None  # the last that it measured; None if it has measured none
    trouble: str = ""  # why nothing is known of it, or what it complains of
    # (of how many iterations since its start, how many took longer than the deadline)
    late: tuple[int, int] = (0, 0)
    worst: float = 0.0  # how many times the deadline the longest of them took


@dataclass(frozen=True)
class Probe:
    """What was found on the way from one device to another."""

    here: str  # name of the device, or of the laptop, that probed
    there: str  # name of the device that was probed
    address: str  # its host and port
    reachable: bool
    # what was found of its certificate: "valid until 2027-11-16", or why it was refused; empty if
    # it was not seen
    certificate: str = ""
    clock_s: float | None = None  # by how many seconds its clock is ahead; None if it is not known
    version: str = ""  # of Joulemesh there; empty if it is not known
    rate_bps: float | None = None  # bits per second that were measured; None if they were not
    # bits per second by the plan; None where the plan does not use the link
    planned_bps: float | None = None
    trouble: str = ""  # what is wrong, and what to do about it; empty if nothing is


_WARM_UP = 256 * 1024  # after which a connection has found its speed
_LONGEST_S = 60.0
_CLOCK_S = 5.0  # by which a clock may be off without a word
_EXPIRES = dt.timedelta(days=14)
_SILENT = (Reason.NAME_NOT_FOUND, Reason.UNREACHABLE, Reason.LATE)


async def probe(
    identity: Identity, here: str, host: Host, plan: str, *, payload_bytes: int = 0
) -> Probe:
    found = Probe(here, host.name, str(host), reachable=False)
    if not host.address:
        return replace(found, address="", trouble="hosts.csv has no address for it; fill it in")
    try:
        with calling(identity, host) as caller:
            return await _asked(caller, found, plan, min(payload_bytes, LEAST_LIMIT))
    except TransportError as fault:
        silent = fault.reason in _SILENT
        shown = "" if silent or "certificate" not in fault.reason else str(fault.reason)
        return replace(found, reachable=not silent, certificate=shown, trouble=str(fault))


async def _asked(caller: Caller, found: Probe, plan: str, payload_bytes: int) -> Probe:
    await push(caller, 0)  # which connects
    begun, told_at = time.monotonic(), time.time()
    hello = await push(caller, 0)
    trip_s = time.monotonic() - begun
    until = dt.datetime.fromtimestamp(min(max(hello.until, 0.0), 4e9), dt.UTC)
    found = replace(
        found,
        reachable=True,
        certificate=f"valid until {until:%Y-%m-%d}",
        clock_s=hello.at - (told_at + trip_s / 2),
        version=hello.version[:40],
        trouble=_trouble(hello, plan, hello.at - told_at, until),
    )
    if not payload_bytes:
        return found
    await push(caller, min(_WARM_UP, payload_bytes), _LONGEST_S)
    begun = time.monotonic()
    answer = await push(caller, payload_bytes, _LONGEST_S)
    taken_s = max(time.monotonic() - begun - trip_s, 1e-6)
    return replace(found, rate_bps=8 * answer.taken / taken_s)


def _trouble(hello: Hello, plan: str, off_s: float, until: dt.datetime) -> str:
    if hello.version != __version__:
        return f"it has Joulemesh {hello.version[:40]}, here is {__version__}; install one of them"
    if hello.plan != plan:
        return "it carries out another plan; enroll it again"
    if abs(off_s) > _CLOCK_S:
        return f"its clock is off by {abs(off_s):.0f} s; set the clocks (chrony, ntp)"
    left = until - dt.datetime.now(dt.UTC)
    if left < _EXPIRES:
        return f"its certificate expires in {left.days} days; sign its request again"
    return ""


STATUS, PROBE, ROSTER = "control/status", "control/probe", "control/roster"
JOURNAL_CALL, MODEL_CALL, TAIL = "control/journal", "control/model", "control/tail"
_PIECE = 64 * 1024


_SIZES: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, int])


class Control:
    """Serves the operator's calls on a node's port."""

    def __init__(
        self,
        pack: DevicePack,
        standing: Callable[[], Standing],
        run: Path,
        settle: Callable[[], Awaitable[None]] | None = None,
        model: Callable[[], Awaitable[Path | None]] | None = None,
    ) -> None:
        self._pack, self._standing, self._run = pack, standing, run
        self._settle, self._model = settle, model
        self._probing = asyncio.Lock()
        self.enrol: Callable[[FleetRoster], int] | None = None
        """Takes a roster, and gives the number of the newest; None if the device has ended."""
        self.collected = asyncio.Event()
        """Set when the operator has copied the journal."""
        self.collected_at = -math.inf
        """When the operator last did so, by the monotonic clock."""
        self.calls: dict[str, Answer] = {
            STATUS: _guarded(self._status),
            ROSTER: _guarded(self._roster),
            PROBE: _guarded(self._probe),
            JOURNAL_CALL: self._journal,
            MODEL_CALL: self._send_model,
            TAIL: self._tail,
        }

    async def _status(self, request: bytes) -> Any:
        return asdict(self._standing())

    async def _roster(self, request: bytes) -> Any:
        if self.enrol is None:
            raise TransportError(Reason.CLOSED, f"{self._pack.name} has ended")
        try:
            roster = read_claim(FleetRoster, parse_json(request))
        except ValueError:
            raise TransportError(Reason.MALFORMED, "it is no roster") from None
        return self.enrol(roster)

    async def _probe(self, request: bytes) -> Any:
        """Probe the neighbours, one after another, so that they do not share the air."""
        wanted = checked(_SIZES, request)
        if self._probing.locked():
            raise TransportError(Reason.TOO_MANY, f"{self._pack.name} is being checked already")
        pack, found = self._pack, []
        async with self._probing:
            for one in pack.neighbours:
                host = pack.hosts[one]
                if host.name not in wanted:
                    continue  # a spare place
                payload = wanted[host.name]
                plan = pack.fleet.digest
                found.append(
                    await probe(pack.identity, pack.name, host, plan, payload_bytes=payload)
                )
        return [asdict(one) for one in found]

    async def _journal(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Every journal that the operator does not have yet: a line about it, and its bytes."""
        _require_operator(peer)
        have = checked(_SIZES, await question(coming))
        if self._settle is not None:
            await self._settle()
        for path in journals_in(self._run):
            size = path.stat().st_size
            if have.get(path.name) == size:
                continue
            yield json.dumps({"file": path.name, "bytes": size}).encode()
            for piece in _pieces(path, 0, size):
                yield piece
        self.collected_at = time.monotonic()
        self.collected.set()

    async def _send_model(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The model as it is on disk now: for each of its files a line about it, and its bytes."""
        _require_operator(peer)
        await question(coming)
        try:
            place = None if self._model is None else await self._model()
        except JoulemeshError as error:
            raise TransportError(Reason.CLOSED, " ".join(str(error).split())) from None
        if place is None:
            return
        for name in (FILE, CONFIG, CARD):
            size = (place / name).stat().st_size
            yield json.dumps({"file": name, "bytes": size}).encode()
            for piece in _pieces(place / name, 0, size, NODE_STATE.now):
                yield piece

    async def _tail(self, peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What the journal in use has beyond what the operator has read of it."""
        # A line that says where it begins, then the bytes. It does not count as collected.
        _require_operator(peer)
        read = checked(_SIZES, await question(coming))
        path = self._run / IN_USE
        size = path.stat().st_size if path.is_file() else 0
        begin = read.get("bytes", 0)
        if not 0 <= begin <= size or _check_sum(path, begin) != read.get("crc32", 0):
            begin = 0  # another file than the operator read: the one before is full
        yield json.dumps({"from": begin, "bytes": size - begin}).encode()
        for piece in _pieces(path, begin, size):
            yield piece


def _require_operator(peer: Peer) -> None:
    if peer.role != "operator":
        raise TransportError(
            Reason.NOT_PERMITTED, f"{peer.name} is not the operator; only the operator may ask"
        )


def _guarded(answer: Callable[[bytes], Awaitable[Any]]) -> Answer:
    async def serve(peer: Peer, coming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        _require_operator(peer)
        yield json.dumps(await answer(await question(coming)), allow_nan=False).encode()

    return serve


def _pieces(path: Path, begin: int, end: int, most: int | None = None) -> Iterator[bytes]:
    """The bytes of a file from one place to another; of a journal's unless ``most`` says more."""
    if begin == end:
        return
    with open_bounded(path, JOURNAL.now if most is None else most) as file:
        file.seek(begin)
        while begin < end and (piece := file.read(min(_PIECE, end - begin))):
            begin += len(piece)
            yield piece


def _check_sum(path: Path, end: int) -> int:
    found = 0
    for piece in _pieces(path, 0, end):
        found = zlib.crc32(piece, found)
    return found
