"""Serving the page on the loopback interface until somebody ends it."""

from __future__ import annotations

__all__ = ["Address", "serve"]

import asyncio
import errno
import secrets
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.optional import require
from joulemesh.scenario import Scenario

_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """Where the page is."""

    port: int  # on the loopback interface
    token: str  # that the address ends in

    @property
    def url(self) -> str:
        """What a browser opens."""
        return f"http://{_HOST}:{self.port}/{self.token}/"


def serve(
    scenario: Scenario,
    *,
    path: Path | None = None,
    port: int = 0,
    load: Sequence[Path] = (),
    ready: Callable[[Address], None] | None = None,
) -> None:
    """Serve the studio until it is interrupted."""
    uvicorn = require("uvicorn", "joulemesh studio")
    require("starlette", "joulemesh studio")
    from joulemesh.studio.app import Studio, make_app
    from joulemesh.studio.guard import Guard
    from joulemesh.studio.jobs import Jobs

    with _socket(port) as listening, tempfile.TemporaryDirectory(prefix="joulemesh-") as folder:
        address = Address(listening.getsockname()[1], secrets.token_urlsafe(24))
        guard = Guard(address.token, address.port)
        studio = Studio(scenario, path, Path(folder), guard, Jobs(load))
        config = uvicorn.Config(
            make_app(studio),
            log_level="error",
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=1,
        )
        try:
            asyncio.run(_serve(_server(uvicorn, studio)(config), listening, address, ready))
        except KeyboardInterrupt:
            pass
        finally:
            studio.jobs.close()


def _server(uvicorn: Any, studio: Any) -> Any:
    """A server that tells its open streams when it is to end, so that they do not delay it."""

    class Server(uvicorn.Server):  # type: ignore[misc]
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            studio.jobs.close()
            studio.closing.set()
            super().handle_exit(sig, frame)

    return Server


async def _serve(
    server: Any, listening: socket.socket, address: Address, ready: Callable[[Address], None] | None
) -> None:
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    if ready is not None and not running.done():
        ready(address)
    await running


def _socket(port: int) -> socket.socket:
    """A socket that listens on loopback."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((_HOST, port))
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise JoulemeshError(
                f"port {port} is in use; end what listens there, or choose another --port "
                "(0 takes any that is free)"
            ) from None
        raise JoulemeshError(
            f"cannot listen on port {port}: {error.strerror}; choose another --port"
        ) from None
    made.listen(128)
    return made
