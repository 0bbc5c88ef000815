"""One TLS 1.3 connection that carries frames: four bytes of length, one of kind, at most 1 MiB.

TLS runs here, over `ssl.MemoryBIO`, and not in asyncio's own protocol, which closes a connection
whose handshake fails before the alert that says why has gone out. After the handshake a refusal is
a frame of its own, with the reason in words.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import json
import os
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from joulemesh.base.errors import printable
from joulemesh.base.files import parse_json
from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.transport import Address, Reason, TransportError

# The verdicts of OpenSSL on a certificate (x509_vfy.h).
_VERDICTS = {
    9: Reason.NOT_YET_VALID,
    10: Reason.EXPIRED,
    18: Reason.OTHER_AUTHORITY,  # self-signed
    19: Reason.OTHER_AUTHORITY,  # a self-signed one in the chain
    20: Reason.OTHER_AUTHORITY,  # issuer unknown
    21: Reason.OTHER_AUTHORITY,  # first one cannot be verified
    7: Reason.OTHER_AUTHORITY,  # signature does not fit: an authority of the same name
    23: Reason.REVOKED,
    62: Reason.OTHER_NAME,
}
# What the other side says of ours, or what this side finds, in an `ssl.SSLError`.
_ALERTS = {
    "CERTIFICATE_REQUIRED": Reason.NO_CERTIFICATE,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Reason.NO_CERTIFICATE,
    "UNKNOWN_CA": Reason.OTHER_AUTHORITY,
    "DECRYPT_ERROR": Reason.OTHER_AUTHORITY,
    "CERTIFICATE_EXPIRED": Reason.EXPIRED,
    "CERTIFICATE_REVOKED": Reason.REVOKED,
    "BAD_CERTIFICATE": Reason.NOT_YET_VALID,  # what OpenSSL says of one whose time has not come
    "CERTIFICATE_UNKNOWN": Reason.BAD_CERTIFICATE,
    "UNSUPPORTED_CERTIFICATE": Reason.BAD_CERTIFICATE,
    "UNSUPPORTED_PROTOCOL": Reason.OLD_TLS,
    "PROTOCOL_VERSION": Reason.OLD_TLS,
    "NO_PROTOCOLS_AVAILABLE": Reason.OLD_TLS,
    "VERSION_TOO_LOW": Reason.OLD_TLS,
}


def server_context(identity: Identity) -> ssl.SSLContext:
    made = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    made.num_tickets = 0  # nobody resumes: every connection shows its certificate anew
    return made


@lru_cache(maxsize=8)
def client_context(identity: Identity) -> ssl.SSLContext:
    """What a device demands of a server: the same, and the name in its certificate."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def _context(protocol: int, identity: Identity) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=identity.authority.decode())
    # Python reads a key from files only. These can be read by their owner only, and go at once.
    with tempfile.TemporaryDirectory(prefix="joulemesh-") as folder:
        chain, key = Path(folder, "chain"), Path(folder, "key")
        chain.write_bytes(identity.certificate)
        os.close(os.open(key, os.O_CREAT | os.O_EXCL, 0o600))
        key.write_bytes(identity.key)
        made.load_cert_chain(chain, key)
        if identity.revoked:
            listed = Path(folder, "revoked")
            listed.write_bytes(identity.revoked)
            made.load_verify_locations(listed)
            made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return made


def verify_reason(error: ssl.SSLCertVerificationError) -> tuple[Reason, str]:
    reason = _VERDICTS.get(error.verify_code, Reason.BAD_CERTIFICATE)
    clock = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    remedy = {
        Reason.NOT_YET_VALID: f"by this clock, which says {clock}; are both clocks right?",
        Reason.EXPIRED: f"by this clock, which says {clock}; enroll the device again, or set the "
        "clock",
        Reason.OTHER_AUTHORITY: "it was not signed by this fleet's authority",
        Reason.REVOKED: "the operator has revoked it; enroll the device again",
    }.get(reason, "")
    return reason, f"{error.verify_message}; {remedy}".rstrip("; ")


def alert_reason(error: ssl.SSLError) -> tuple[Reason, str] | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return verify_reason(error)
    said = (error.reason or "").partition("ALERT_")[2] or error.reason or ""
    found = _ALERTS.get(said)
    return (found, said.lower().replace("_", " ")) if found else None


def client_reason(error: ssl.SSLError, fault: str | None, there: str) -> tuple[Reason, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason, detail = verify_reason(error)
        return reason, f"{there} shows a certificate: {detail}"
    found = alert_reason(error)
    if found is None:
        detail = (error.reason or str(error)).lower().replace("_", " ")
        return Reason.NOT_TLS, f"{there} does not speak TLS: {detail}"
    reason, detail = found
    own = fault or f"{there} refuses this device's certificate ({detail})"
    if reason is Reason.NOT_YET_VALID and not fault:
        own += "; are both clocks right?"
    return reason, own


FRAME_BYTES = 1024 * 1024
_FIRST_BYTES = 64 * 1024  # of a frame, until its sender is known to be a neighbour or operator
_HANDSHAKE_BYTES = 64 * 1024  # of a stranger, before its certificate is checked
_HEAD = struct.Struct(">IB")
_READ = 16 * 1024  # one record of TLS
_LAST_WORDS_S = 1.0  # for the other side to read why it was refused
_CONNECT_S = 4.0
_DETAIL = 300
_UNSENT_BYTES = 128 * 1024  # in the system's queue: what is urgent waits behind no more
_IDLE_S, _DEAD_S = 10, 20  # without a word; without an acknowledgement of TCP


class Kind(IntEnum):
    """What a frame is."""

    WELCOME = 1
    """From the server, first: the certificate is accepted."""
    GREETING = 2
    """From a neighbour: messages will follow."""
    TAKEN = 3
    """How many frames with messages have been taken."""
    CONTROL = 4
    """Messages that are short and urgent."""
    PARTS = 5
    """Messages with vectors, or pieces of them."""
    CALL = 6
    """From an operator or a neighbour: the name of a call, whose question follows."""
    DATA = 7
    """A piece of a question or an answer."""
    END = 8
    """Of a question or an answer."""
    REFUSED = 9
    """From the server, last: the reason, and a line about it."""


class Connection(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, context: ssl.SSLContext, name: str | None = None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=name is None, server_hostname=name
        )
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._inside = bytearray()
        self._fault: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._came, self._is_server = 0, name is None
        self._is_open = self._paused = False
        self.most = _FIRST_BYTES
        """Bytes of a frame that are taken."""
        self.when_lost: Callable[[], object] = lambda: None
        self.shaken: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is; or why it never will be (`OSError`)."""

    @property
    def certificate(self) -> dict[str, Any]:
        return dict(self._tls.getpeercert() or {})

    @property
    def is_attached(self) -> bool:
        return self._transport is not None

    @property
    def socket(self) -> Any:
        return self._transport.get_extra_info("socket")

    async def receive(self) -> tuple[int, bytes]:
        while (frame := self._frame()) is None:
            if self._fault is not None:
                raise self._fault
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if frame[0] == Kind.REFUSED and not self._is_server:
            raise _refusal(frame[1])
        return frame

    def _frame(self) -> tuple[int, bytes] | None:
        inside = self._inside
        if len(inside) >= _HEAD.size:
            size, kind = _HEAD.unpack_from(inside)
            if size > self.most:
                raise TransportError(
                    Reason.TOO_LARGE, f"a frame of {size:,} bytes; at most {self.most:,}"
                )
            end = _HEAD.size + size
            if len(inside) >= end:
                content = bytes(inside[_HEAD.size : end])
                del inside[:end]
                return kind, content
        if self._paused and self._fault is None:
            self._paused = False
            self._transport.resume_reading()
        return None

    def write(self, kind: Kind, content: bytes = b"") -> None:
        """Send a frame; nothing happens if the connection has ended."""
        if self._fault is not None:
            return
        try:
            self._tls.write(_HEAD.pack(len(content), kind) + content)
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    async def drain(self) -> None:
        await self._writable.wait()
        if self._fault is not None:
            raise self._fault

    def refuse(self, error: TransportError) -> None:
        """Tell the other end why it is refused, if it can be told, and end the connection."""
        if self._is_open:
            said = {"reason": str(error.reason), "detail": printable(error.detail)[:_DETAIL]}
            self.write(Kind.REFUSED, json.dumps(said).encode())
        self.end()

    def end(self) -> None:
        """End the connection, once the other side has had time to read the last that was said."""
        if self._transport is None or self._transport.is_closing():
            return
        self._fail(_closed())
        self._inside.clear()
        # Unread bytes would make the system throw away what was sent.
        self._transport.resume_reading()
        with suppress(OSError, RuntimeError):
            self._transport.write_eof()
        self._loop.call_later(_LAST_WORDS_S, self._transport.abort)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._fail(_closed())

    def abort(self, error: OSError | None = None) -> None:
        self._fail(error or _closed())
        if self._transport is not None:
            self._transport.abort()

    def give_way(self, error: OSError) -> None:
        if not self.shaken.done():
            self._fail(error)

    # What asyncio calls ---------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        if not self._is_server:
            self._shake()

    def data_received(self, data: bytes) -> None:
        if self._fault is not None:
            return
        self._in.write(data)
        if not self._is_open:
            self._came += len(data)
            self._shake()
        if self._is_open:
            self._decrypt()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or _closed())
        self.when_lost()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._came > _HANDSHAKE_BYTES:
                self._fail(ConnectionError(f"a handshake of more than {_HANDSHAKE_BYTES:,} bytes"))
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._is_open = True
            if not self.shaken.done():
                self.shaken.set_result(None)
        self._flush()

    def _decrypt(self) -> None:
        try:
            while piece := self._tls.read(_READ):
                self._inside += piece
            self._fail(_closed())
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()
        if len(self._inside) >= _HEAD.size + self.most and not self._paused:
            self._paused = True  # a whole frame is here, or one that is too large
            self._transport.pause_reading()
        self._wake()

    def _flush(self) -> None:
        if self._out.pending and not self._transport.is_closing():
            self._transport.write(self._out.read())

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._fault = self._fault or error
        if not self.shaken.done():
            self.shaken.set_exception(self._fault)
            self.shaken.exception()  # perhaps nobody waits for it any more
        self._writable.set()
        self._wake()


def _closed() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "closed the connection without a word")


def _refusal(content: bytes) -> TransportError:
    try:
        said = parse_json(content)
        reason, detail = Reason(said["reason"]), printable(str(said["detail"]))[:_DETAIL]
    except (ValueError, TypeError, LookupError):
        return TransportError(Reason.MALFORMED, "it refuses without a reason")
    return TransportError(reason, detail)


class Endpoint:
    """A device that listens, as seen by whoever connects to it."""

    def __init__(self, identity: Identity, name: str, address: Address) -> None:
        self.identity, self.name, self.address = identity, name, address

    def __str__(self) -> str:
        return f"{self.name} at {self.address}"

    async def connect(self, within_s: float = _CONNECT_S) -> Connection:
        """A connection on which both ends have accepted each other's certificate."""
        try:
            async with asyncio.timeout(within_s):
                return await self._steps()
        except TimeoutError:
            raise TransportError(
                Reason.UNREACHABLE, f"{self} does not answer within {within_s:g} s"
            ) from None

    async def _steps(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(*self.address, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise TransportError(
                Reason.NAME_NOT_FOUND,
                f"no machine is called {self.address.host!r}; correct hosts.csv",
            ) from None
        trouble: Exception = ConnectionError("no address")
        for family, kind, protocol, _, place in found:
            try:
                return await self._shake_hands(family, kind, protocol, place)
            except ssl.SSLError as error:
                raise self.why(error) from None
            except OSError as error:
                trouble = error
        raise self.why(trouble)

    async def _shake_hands(self, family: int, kind: int, protocol: int, place: Any) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(client_context(self.identity), self.name)
        plain = socket.socket(family, kind, protocol)
        try:
            plain.setblocking(False)
            prepare(plain)
            await loop.sock_connect(plain, place)
            await loop.create_connection(lambda: connection, sock=plain)
            await connection.shaken
            # In TLS 1.3 a server looks at the client's certificate after the client has finished.
            first, _ = await connection.receive()
            if first != Kind.WELCOME:
                raise TransportError(Reason.OTHER_VERSION, "it speaks another format")
        except TransportError as error:
            connection.abort()
            raise self.why(error) from None
        except BaseException:
            connection.abort()
            plain.close()
            raise
        return connection

    def why(self, error: Exception) -> TransportError:
        if isinstance(error, TransportError):
            return TransportError(error.reason, f"{self}: {error.detail}")
        if isinstance(error, ssl.SSLError):
            reason, detail = client_reason(error, self.identity.bearer.fault(), str(self))
            return TransportError(reason, detail)
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            if error.errno and "call failed" in why:  # asyncio's words for any reason
                why = os.strerror(error.errno)
            return TransportError(Reason.UNREACHABLE, f"{self}: {why}")
        raise error


def prepare(plain: socket.socket) -> None:
    """Set the options of a connection: small frames at once, short queues, dead ends noticed."""
    options = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_NOTSENT_LOWAT", _UNSENT_BYTES),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", _IDLE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", _IDLE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 2),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 1000 * _DEAD_S),
    ]
    for level, name, value in options:
        with suppress(OSError, AttributeError):  # not every system has all of them
            plain.setsockopt(level, getattr(socket, name), value)
