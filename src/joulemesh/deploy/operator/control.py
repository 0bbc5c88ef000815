"""What a running node tells the fleet's operator, and lets neighbours measure.

The calls share the node's port and its gate. ``roster`` brings one that the authority has signed;
nothing else changes anything. All of them are for the holder of the operator's certificate.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from joulemesh.base.bounded import JOURNAL, NODE_STATE, open_bounded, parse_json
from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.device.journal import JOURNAL as IN_USE
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.device.model import CARD, CONFIG, FILE
from joulemesh.deploy.fields import read_record
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.messages import FleetRoster
from joulemesh.deploy.operator.standing import Standing, probe
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.gate import Answer, Peer, checked, question

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
            roster = read_record(FleetRoster, parse_json(request))
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
