"""The gate of a device: who may come in, by TLS 1.3 and certificate, and who is refused and why.

gRPC's own server can neither demand TLS 1.3 nor tell whom it has refused, or why. So the gate takes
the connections, shakes hands, and passes what is inside on to the gRPC server, which listens on a
socket of the file system in a folder that nobody else can enter. Each connection has an end there
with a path of its own, by which the server knows whose it is.
"""

from __future__ import annotations

__all__ = ["Gate", "Peer"]

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulemesh.deploy.fleet.identity import Identity, IdentityError, Role, bearer_of
from joulemesh.deploy.transport import Address, Reason, Refusal, TransportError
from joulemesh.deploy.transport.halves import Half, SecureHalf
from joulemesh.deploy.transport.tls import alert_reason, server_context
from joulemesh.files.lock import FolderLock

_HANDSHAKE_S = 4.0
_HANDSHAKES, _HANDSHAKES_OF_ONE = 96, 24  # at once; of one machine
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
    """

    def __init__(
        self,
        identity: Identity,
        names: Sequence[str],
        listen: Address,
        refused: Callable[[Refusal], None],
        gone: Callable[[], None] = lambda: None,
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
        self._shaking: Counter[str] = Counter()
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
            address = str(Address(place[0], place[1]))
            here, all_here = self._shaking[place[0]], self._shaking.total()
            if here >= _HANDSHAKES_OF_ONE or all_here >= _HANDSHAKES:
                taken.close()
                detail = f"{all_here} are at the gate, {here} of them from there"
                self._refuse(Reason.TOO_MANY, detail, address)
                continue
            self._shaking[place[0]] += 1  # here, since tasks may start after many more were taken
            self._run(self._admit(taken, place[0], address))

    async def _admit(self, taken: socket.socket, host: str, address: str) -> None:
        outer = SecureHalf(self._context)
        try:
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: outer, taken)
            async with asyncio.timeout(_HANDSHAKE_S):
                await outer.shaken
        except (OSError, TimeoutError) as error:
            outer.end()
            self._refuse(*_why(error), address)
            return
        except asyncio.CancelledError:
            outer.abort()
            raise
        finally:
            self._shaking -= Counter([host])  # which drops what has come to 0
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
