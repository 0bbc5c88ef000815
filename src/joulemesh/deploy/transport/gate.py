"""The gate of a device: who may come in, by TLS 1.3 and certificate, and who is refused and why.

gRPC's own server can neither demand TLS 1.3 nor tell whom it has refused, or why. So the gate takes
the connections, shakes hands, and passes what is inside on to the gRPC server, which listens on a
socket of the file system in a folder that nobody else can enter. Each connection has an end there
with a path of its own, by which the server knows whose it is.
"""

from __future__ import annotations

__all__ = ["Gate", "Peer", "Places"]

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulemesh.deploy.fleet.identity import Identity, IdentityError, Role, bearer_of
from joulemesh.deploy.transport import Address, Reason, Refusal, TransportError
from joulemesh.deploy.transport.halves import Half, SecureHalf
from joulemesh.deploy.transport.tls import alert_reason, server_context
from joulemesh.files.lock import FolderLock

_HANDSHAKE_S = 4.0
_HANDSHAKES, _HANDSHAKES_OF_ONE = 96, 24  # at once: of all strangers; of one machine
_RESOLVE_S = 60.0  # after which the neighbours' names are looked up again
_CONNECTIONS = 8  # of one name
_FOLDER, _LONGEST_PATH, _OLD_S = "joulemesh-in-", 70, 60.0
_NO_ROOM_S = 0.05


@dataclass(frozen=True)
class Peer:
    """Whoever is at the other end of a connection.

    Attributes:
        name: in its certificate.
        role: that its certificate gives it.
        device: its number in the roster; None for an operator, and where it is not in it.
        address: where it comes from.
    """

    name: str
    role: Role
    device: int | None
    address: str


class Gate:
    """Takes connections, and passes on those whose certificate is of this fleet.

    Args:
        identity: of the device.
        names: of the devices in the roster, by number.
        listen: where.
        refused: told of everybody who is refused.
        gone: called whenever a connection has come to nothing, or has ended.
        neighbours: host names or addresses that always find a place.
    """

    def __init__(
        self,
        identity: Identity,
        names: Sequence[str],
        listen: Address,
        refused: Callable[[Refusal], None],
        gone: Callable[[], None] = lambda: None,
        neighbours: Iterable[str] = (),
    ) -> None:
        self._listen, self._refused, self._gone = listen, refused, gone
        self._numbers = {name: device for device, name in enumerate(names)}
        self._context = server_context(identity)
        self._folder, self._lock = _private_folder()
        self.inside = self._folder / "in"
        self._peers: dict[str, Peer] = {}
        self._open: dict[str, list[SecureHalf]] = defaultdict(list)
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._neighbours = set(neighbours)
        self._places = Places()
        self._count = 0

    @property
    def port(self) -> int:
        """The port that it listens on, once it does."""
        return int(self._sockets[0].getsockname()[1])

    def peer(self, inside: str) -> Peer | None:
        """Whose connection it is.

        Args:
            inside: what gRPC calls it.
        """
        return self._peers.get(inside.removeprefix("unix:"))

    async def open(self) -> None:
        """Begin to take connections.

        Raises:
            TransportError: the address is not this machine's, or is taken.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(*self._listen, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, place in dict.fromkeys(found):
                self._sockets.append(_listening(family, kind, protocol, place))
        except OSError as error:
            await self.close()
            raise TransportError(
                Reason.UNREACHABLE,
                f"cannot listen on {self._listen}: {error.strerror or error}; correct hosts.csv, "
                "or end the process that uses this port",
            ) from None
        for one in self._sockets:
            self._run(self._accept(one))
        self._run(self._find_neighbours())

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()
        self._lock.__exit__(None, None, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._gone()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, place = await loop.sock_accept(listening)
            except OSError:  # no room for more, until others have gone
                await asyncio.sleep(_NO_ROOM_S)
                continue
            address, outer = str(Address(place[0], place[1])), SecureHalf(self._context)
            self._places.take(place[0], outer)  # tasks may start after many more were taken
            self._run(self._admit(taken, outer, place[0], address))

    async def _find_neighbours(self) -> None:
        """Know the neighbours by their addresses, as far as their names can be looked up."""
        loop = asyncio.get_running_loop()
        while True:
            found = await asyncio.gather(
                *(loop.getaddrinfo(one, None) for one in self._neighbours), return_exceptions=True
            )
            known = {
                str(place[0])
                for one in found
                if not isinstance(one, BaseException)
                for *_, place in one
            }
            self._places.kept = known or self._places.kept
            await asyncio.sleep(_RESOLVE_S)

    async def _admit(
        self, taken: socket.socket, outer: SecureHalf, host: str, address: str
    ) -> None:
        try:
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: outer, taken)
            async with asyncio.timeout(_HANDSHAKE_S):
                await outer.shaken
        except GaveWayError as error:
            outer.abort()
            self._refuse(Reason.TOO_MANY, str(error), address)
            return
        except (OSError, TimeoutError) as error:
            outer.end()
            self._refuse(*_why(error), address)
            return
        except asyncio.CancelledError:
            outer.abort()
            raise
        finally:
            self._places.leave(host, outer)
        peer = self._known(outer, address)
        if peer is None:
            outer.end()
        else:
            await self._pass_on(outer, peer)

    def _known(self, outer: SecureHalf, address: str) -> Peer | None:
        shown = outer.certificate()
        names = [name for kind, name in shown.get("subjectAltName", ()) if kind == "DNS"]
        try:
            name, role = bearer_of(names[0] if len(names) == 1 else "")
        except IdentityError:
            self._refuse(Reason.NOT_IN_ROSTER, "its certificate bears no device's name", address)
            return None
        device = self._numbers.get(name) if role == "device" else None
        return Peer(name, role, device, address)

    async def _pass_on(self, outer: SecureHalf, peer: Peer) -> None:
        """Join the connection to one of the gRPC server's, until either ends."""
        loop = asyncio.get_running_loop()
        self._count += 1
        path = str(self._folder / str(self._count))
        self._peers[path] = peer
        outer.when_lost = lambda: self._peers.pop(path, None)  # before the inner end hears of it
        own = self._open[peer.name]
        own.append(outer)
        if len(own) > _CONNECTIONS:
            own[0].abort()  # of a device that was started again, the oldest has nobody at its end
        end = socket.socket(socket.AF_UNIX)
        try:
            end.bind(path)
            end.setblocking(False)
            await loop.sock_connect(end, str(self.inside))
            inner = Half()
            await loop.create_connection(lambda: inner, sock=end)
            outer.join(inner)
            await asyncio.gather(outer.lost.wait(), inner.lost.wait())
        except OSError:
            end.close()
        finally:
            outer.abort()
            own.remove(outer)
            self._peers.pop(path, None)
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _refuse(self, reason: Reason, detail: str, address: str, peer: str = "") -> None:
        self._refused(Refusal(reason, detail, peer, address))


class GaveWayError(ConnectionError):
    """A handshake that was not over when somebody else needed its place."""


class Places:
    """Who shakes hands: the neighbours in places of their own, strangers in those that they share.

    Nobody is turned away at the gate. Where there is no place, the oldest handshake gives way of
    the machine that has the most: one that is in earnest is over in a moment, and whoever fills
    places with silence loses them first.

    >>> class Coming:
    ...     gave_way = False
    ...     def give_way(self, error):
    ...         self.gave_way = True
    >>> places, operator = Places(), Coming()
    >>> places.kept = {"10.0.0.1"}
    >>> places.take("10.0.0.99", operator)
    >>> for turn in range(1000):
    ...     places.take(f"10.0.9.{turn % 8}", Coming())
    >>> operator.gave_way, places.total
    (False, 96)
    """

    def __init__(self) -> None:
        self.kept: set[str] = set()
        """Addresses of neighbours."""
        self._at: dict[str, list[Any]] = {}

    @property
    def total(self) -> int:
        """Handshakes of strangers."""
        return sum(len(here) for host, here in self._at.items() if host not in self.kept)

    def take(self, host: str, coming: Any) -> None:
        """Take a place; somebody gives way if there is none."""
        here = self._at.setdefault(host, [])
        if len(here) >= _HANDSHAKES_OF_ONE:
            self._give_way(host)
        elif host not in self.kept and self.total >= _HANDSHAKES:
            strangers = [one for one in self._at if one not in self.kept]
            self._give_way(max(strangers, key=lambda one: len(self._at[one])))
        self._at.setdefault(host, []).append(coming)

    def _give_way(self, host: str) -> None:
        many = len(self._at[host])
        oldest = self._at[host][0]
        self.leave(host, oldest)
        oldest.give_way(GaveWayError(f"{many} handshakes from there were not over"))

    def leave(self, host: str, coming: Any) -> None:
        """Its handshake is over, one way or the other."""
        here = self._at.get(host, [])
        if coming in here:
            here.remove(coming)
        if not here:
            self._at.pop(host, None)


def _private_folder() -> tuple[Path, FolderLock]:
    """A new folder that nobody else can enter; those that killed processes have left are removed.

    A path of a socket has at most 107 bytes, which the system's folder for such things may exceed.
    """
    usual = Path(tempfile.gettempdir())
    above = usual if len(os.fsencode(usual)) < _LONGEST_PATH else Path("/tmp")
    for left in above.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            found = left.stat()
            old = time.time() - found.st_mtime > _OLD_S  # one that is being made has no lock yet
            if old and found.st_uid == os.getuid() and not FolderLock.is_held(left):
                shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=above))
    return made, FolderLock(made).__enter__()


def _listening(family: int, kind: int, protocol: int, place: Any) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(place)
        made.listen(128)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _why(error: OSError) -> tuple[Reason, str]:
    """Why a handshake has failed."""
    if isinstance(error, ssl.SSLError):
        found = alert_reason(error)
        if found is not None:
            return found
        text = (error.reason or str(error)).lower().replace("_", " ")
        return Reason.NOT_TLS, f"its handshake makes no sense ({text})"
    if isinstance(error, TimeoutError):
        return Reason.LATE, f"no handshake within {_HANDSHAKE_S:g} s"
    return Reason.BROKEN_OFF, "it left; perhaps it does not trust this device's certificate"
