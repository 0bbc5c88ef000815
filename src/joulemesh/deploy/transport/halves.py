"""Two connections joined: what comes in by one goes out by the other, one of them through TLS.

The handshake is not left to asyncio, which closes a connection before the other side can be told
why it was refused.
"""

from __future__ import annotations

__all__ = ["Half", "SecureHalf"]

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

_BUFFER = 1024 * 1024
_READ = 256 * 1024
_LAST_WORDS_S = 1.0  # for the other side to read why it was refused


class Half(asyncio.Protocol):
    """One end of a joined pair: what comes in here goes out there, no faster than it is taken."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.when_lost: Callable[[], object] = lambda: None
        self.ends: Any = None
        self.other: Half | None = None

    def join(self, other: Half) -> None:
        """Begin to pass on."""
        self.other, other.other = other, self
        for half in (self, other):
            half.ends.set_write_buffer_limits(high=_BUFFER)
            half.go_on()
        if self.lost.is_set():
            other.ends.close()

    def write(self, data: bytes) -> None:
        """Let it go out here."""
        self.ends.write(data)

    def go_on(self) -> None:
        """Take what comes in."""
        if not self.ends.is_closing():
            self.ends.resume_reading()

    def connection_made(self, transport: Any) -> None:
        """Take nothing before there is anybody to pass it on to."""
        self.ends = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self.other is not None:
            self.other.write(data)

    def pause_writing(self) -> None:
        """Take no more from the other end than this one can get rid of."""
        if self.other is not None and not self.other.ends.is_closing():
            self.other.ends.pause_reading()

    def resume_writing(self) -> None:
        """Go on taking."""
        if self.other is not None:
            self.other.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """What ends here ends there."""
        self.lost.set()
        self.when_lost()
        if self.other is not None:
            self.other.ends.close()


class SecureHalf(Half):
    """The end that a client of TLS has connected to.

    Args:
        context: of the server.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self.shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the handshake is; or why it never will be (`OSError`)."""
        self._ended = False

    def certificate(self) -> Mapping[str, Any]:
        """What the client has shown, as `ssl.SSLSocket.getpeercert` gives it."""
        return self._tls.getpeercert() or {}

    def end(self) -> None:
        """End the connection, once the other side has had time to read the last that was said."""
        if self.ends is None or self.ends.is_closing():
            return
        self._ended = True
        self.ends.resume_reading()  # unread bytes would make the system throw away what was sent
        self.ends.write_eof()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self.ends.abort)

    def give_way(self, error: OSError) -> None:
        """Give up the handshake, unless it is over."""
        if not self.shaken.done():
            self._ended = True
            self.shaken.set_exception(error)

    def abort(self) -> None:
        """End the connection at once."""
        self._ended = True
        if self.ends is not None:
            self.ends.abort()

    def connection_made(self, transport: Any) -> None:
        """Wait for the client's first words."""
        self.ends = transport

    def data_received(self, data: bytes) -> None:
        """Take part in the handshake; after it, pass on what is inside."""
        if self._ended:
            return
        self._in.write(data)
        if not self.shaken.done():
            self._shake()
        else:
            self._pass_on()

    def go_on(self) -> None:
        """Take what comes in, and first what is here already."""
        super().go_on()
        self._pass_on()

    def write(self, data: bytes) -> None:
        """Let it go out here, encrypted."""
        if self._ended or self.ends.is_closing():
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:  # the client has gone mad
            self.abort()
        else:
            self.ends.write(self._out.read())

    def connection_lost(self, exc: Exception | None) -> None:
        """What ends here ends there."""
        super().connection_lost(exc)
        if not self.shaken.done():
            self.shaken.set_exception(exc or ConnectionResetError(104, "closed"))

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._ended = True
            self.shaken.set_exception(error)
        else:
            self.ends.pause_reading()  # until there is somebody to pass it on to
            self.shaken.set_result(None)
        self.ends.write(self._out.read())

    def _pass_on(self) -> None:
        if self.other is None or self._ended:
            return
        try:
            while inside := self._tls.read(_READ):
                self.other.write(inside)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # the client says goodbye, or makes no sense
            self.ends.close()
        if self._out.pending:
            self.ends.write(self._out.read())
