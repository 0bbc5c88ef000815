"""Pages on the loopback interface: the studio, and a fleet at work.

Threads of the standard library serve them, so that a small device can do it too: one page asks a
few times a second, and nobody else is answered (`joulemesh.studio.guard`).
"""

from __future__ import annotations

import errno
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joulemesh.base.errors import JoulemeshError
from joulemesh.studio.guard import HEADERS, Guard

_HOST = "127.0.0.1"
_PATIENCE_S = 10.0  # for a request to arrive
_MOST_BYTES = 16 << 20  # of a request: a pasted table of 100,000 devices
_JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """What a request gets."""

    content: str | Iterator[str]  # the parts of a stream of events one after another
    kind: str = _JSON
    status: int = 200
    policy: bool = True  # the server's; False for a page that has its own

    @classmethod
    def refusal(cls, status: int, why: str) -> Answer:
        return cls(why, "text/plain", status)


class PageServer:
    """Serves what ``respond`` gives for the path behind the token and, of a POST, its body."""

    def __init__(self, respond: Callable[[str, bytes | None], Answer], port: int = 0) -> None:
        self._respond = respond
        self._server = _listen(self._handler(), port)
        self.port = int(self._server.server_address[1])
        self._guard = Guard(secrets.token_urlsafe(24), self.port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}/{self._guard.token}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S  # and one request for each connection, which ends with the server

            def do_GET(self) -> None:
                _send(self, outer._answer(self))

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *words: Any) -> None:
                """Say nothing."""

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> Answer:
        token, _, path = request.path.partition("?")[0].lstrip("/").partition("/")
        if not token:
            return Answer.refusal(404, "there is no such page")
        headers = {name.lower(): value for name, value in request.headers.items()}
        why = self._guard.refusal(token, headers)
        if why is not None:
            return Answer.refusal(403, why)
        body = _body(request, headers) if request.command == "POST" else None
        try:
            return body if isinstance(body, Answer) else self._respond(path, body)
        except JoulemeshError as error:
            return Answer.refusal(503, str(error))


def _body(request: BaseHTTPRequestHandler, headers: dict[str, str]) -> bytes | Answer:
    if headers.get("content-type", "").partition(";")[0] != _JSON:
        return Answer.refusal(415, "an order is JSON")
    size = headers.get("content-length", "")
    if not size.isdecimal():
        return Answer.refusal(411, "the request does not say how long it is")
    if int(size) > _MOST_BYTES:
        return Answer.refusal(413, "that is more than 16 MiB")
    return request.rfile.read(int(size))


def _send(request: BaseHTTPRequestHandler, answer: Answer) -> None:
    request.send_response(answer.status)
    for name, value in HEADERS.items():
        if answer.policy or name != "Content-Security-Policy":
            request.send_header(name, value)
    request.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
    if isinstance(answer.content, str):
        data = answer.content.encode()
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
        return
    request.end_headers()
    with suppress(OSError):  # the page was closed
        for part in answer.content:
            request.wfile.write(part.encode())
            request.wfile.flush()


def _listen(handler: type[BaseHTTPRequestHandler], port: int) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A browser that goes away in the middle is no news."""

    try:
        return Server((_HOST, port), handler)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"is refused ({error.strerror})"
        raise JoulemeshError(
            f"port {port} {why}; end what listens there, or choose another --port (0 takes any "
            "that is free)"
        ) from None
