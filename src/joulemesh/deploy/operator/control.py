"""What a running node tells the fleet's operator, and lets neighbours measure.

The calls share the node's port and its gate. ``Roster`` brings one that the authority has signed;
nothing else changes anything. All of them are for the holder of the operator's certificate, but
``Echo`` also for the node's neighbours.
"""

from __future__ import annotations

__all__ = ["JOURNAL_CALL", "MODEL_CALL", "PROBE", "ROSTER", "STATUS", "TAIL", "Control"]

import asyncio
import json
import math
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulemesh._version import __version__
from joulemesh.deploy.device.journal import JOURNAL as IN_USE
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.device.model import CARD, CONFIG, FILE
from joulemesh.deploy.fields import read_record
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.messages import FleetRoster
from joulemesh.deploy.operator.probing import ECHO, MOST_BYTES, Greeting, probe
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.errors import JoulemeshError
from joulemesh.files.bounded import open_bounded, parse_json
from joulemesh.files.limits import JOURNAL, NODE_STATE

import grpc  # isort: skip  (probing prepares it, and says what to install where it is missing)

if TYPE_CHECKING:
    from joulemesh.deploy.transport.grpc import GrpcTransport

STATUS = "/joulemesh.Control/Status"
PROBE = "/joulemesh.Control/Probe"
JOURNAL_CALL = "/joulemesh.Control/Journal"
MODEL_CALL = "/joulemesh.Control/Model"
TAIL = "/joulemesh.Control/Tail"
ROSTER = "/joulemesh.Control/Roster"
_PIECE = 64 * 1024


class Control(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves the operator's calls on a node's port.

    Args:
        transport: whose port it is; it knows who calls.
        pack: the device's folder.
        standing: how the device stands.
        run: folder of its journal.
        settle: awaited before the journal is read, so that its last lines are on disk.
        model: writes the device's model as it is now, and gives its folder.
    """

    def __init__(
        self,
        transport: GrpcTransport,
        pack: DevicePack,
        standing: Callable[[], Standing],
        run: Path,
        settle: Callable[[], Awaitable[None]] | None = None,
        model: Callable[[], Awaitable[Path | None]] | None = None,
    ) -> None:
        self._transport, self._pack, self._standing, self._run = transport, pack, standing, run
        self._settle, self._model = settle, model
        self._until = pack.identity.bearer.not_after.timestamp()
        self._probing = asyncio.Lock()
        self.enrol: Callable[[FleetRoster], int] | None = None
        """Takes a roster, and gives the number of the newest; None if the device has ended."""
        self.collected = asyncio.Event()
        """Set when the operator has copied the journal."""
        self.collected_at = -math.inf
        """When the operator last did so, by the monotonic clock."""

    def service(self, handler_call_details: Any) -> Any:
        """What serves a call; None if it is another's."""
        served = {
            STATUS: grpc.unary_unary_rpc_method_handler(self._guarded(self._status)),
            ROSTER: grpc.unary_unary_rpc_method_handler(self._guarded(self._roster)),
            PROBE: grpc.unary_unary_rpc_method_handler(self._guarded(self._probe)),
            JOURNAL_CALL: grpc.unary_stream_rpc_method_handler(self._journal),
            MODEL_CALL: grpc.unary_stream_rpc_method_handler(self._send_model),
            TAIL: grpc.unary_stream_rpc_method_handler(self._tail),
            ECHO: grpc.stream_unary_rpc_method_handler(self._echo),
        }
        return served.get(handler_call_details.method)

    def _guarded(self, answer: Callable[[bytes], Any]) -> Callable[[bytes, Any], Any]:
        """An answer for the operator only."""

        async def serve(request: bytes, context: Any) -> bytes:
            try:
                self._require_operator(context)
                return json.dumps(await answer(request), allow_nan=False).encode()
            except TransportError as error:
                await self._transport.refuse(context, error)

        return serve

    def _require_operator(self, context: Any) -> None:
        peer = self._transport.peer_of(context)
        if peer.role != "operator":
            raise TransportError(
                Reason.NOT_PERMITTED, f"{peer.name} is not the operator; only the operator may ask"
            )

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
        wanted = _sizes(request)
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

    async def _journal(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Every journal that the operator does not have yet: a line about it, and its bytes."""
        try:
            self._require_operator(context)
            have = _sizes(request)
        except TransportError as error:
            await self._transport.refuse(context, error)
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

    async def _send_model(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """The model as it is on disk now: for each of its files a line about it, and its bytes."""
        try:
            self._require_operator(context)
            place = None if self._model is None else await self._model()
        except JoulemeshError as error:
            if not isinstance(error, TransportError):
                error = TransportError(Reason.CLOSED, " ".join(str(error).split()))
            await self._transport.refuse(context, error)
        if place is None:
            return
        for name in (FILE, CONFIG, CARD):
            size = (place / name).stat().st_size
            yield json.dumps({"file": name, "bytes": size}).encode()
            for piece in _pieces(place / name, 0, size, NODE_STATE.now):
                yield piece

    async def _tail(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """What the journal in use has beyond what the operator has read of it.

        A line that says where it begins, then the bytes. It does not count as collected.
        """
        try:
            self._require_operator(context)
            read = _sizes(request)
        except TransportError as error:
            await self._transport.refuse(context, error)
        path = self._run / IN_USE
        size = path.stat().st_size if path.is_file() else 0
        begin = read.get("bytes", 0)
        if not 0 <= begin <= size or _check_sum(path, begin) != read.get("crc32", 0):
            begin = 0  # another file than the operator read: the one before is full
        yield json.dumps({"from": begin, "bytes": size - begin}).encode()
        for piece in _pieces(path, begin, size):
            yield piece

    async def _echo(self, pieces: Any, context: Any) -> bytes:
        taken, pack = 0, self._pack
        try:
            peer = self._transport.peer_of(context)
            if peer.role != "operator" and peer.device not in pack.neighbours:
                raise TransportError(
                    Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {pack.name}"
                )
            async for piece in pieces:
                taken += len(piece)
                if taken > MOST_BYTES:
                    raise TransportError(Reason.TOO_LARGE, f"more than {MOST_BYTES:,} bytes")
        except TransportError as error:
            await self._transport.refuse(context, error)
        digest = pack.fleet.digest
        said = Greeting(pack.name, time.time(), __version__, digest, self._until, taken)
        return json.dumps(asdict(said)).encode()


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
    """CRC-32 of the first bytes of a file."""
    found = 0
    for piece in _pieces(path, 0, end):
        found = zlib.crc32(piece, found)
    return found


def _sizes(request: bytes) -> dict[str, int]:
    """Numbers of bytes by name, as a request gives them.

    >>> _sizes(b'{"a": 3}')
    {'a': 3}
    """
    try:
        values = parse_json(request)
        if isinstance(values, dict) and all(type(one) is int for one in values.values()):
            return values
    except ValueError:
        pass
    raise TransportError(Reason.MALFORMED, "the question makes no sense")
