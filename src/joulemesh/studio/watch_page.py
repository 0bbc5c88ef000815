"""The page of a fleet at work, and the server that sends it; nothing of the fleet is changed."""

from __future__ import annotations

__all__ = ["PageServer", "render_watch", "serve_node", "watch_fleet"]

import errno
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.operator.standing import Standing
from joulemesh.studio.guard import HEADERS, Guard
from joulemesh.studio.watching import Document, FleetSource, NodeSource, Source
from joulemesh.views.deployment.charts import Curve
from joulemesh.views.deployment.page import CHARTS, course_charts, link_charts
from joulemesh.views.page import render_page

_HOST = "127.0.0.1"
_CALM_S = 0.5  # a document serves all who ask within this time
_PATIENCE_S = 10.0  # for a request to arrive


class PageServer:
    """A page and what it asks for.

    Args:
        page: writes the page around a document.
        document: gives what the page draws.
        port: on the loopback interface; 0 for any that is free.

    Raises:
        JoulemeshError: the port is in use.
    """

    def __init__(
        self, page: Callable[[Any], str], document: Callable[[], Any], port: int = 0
    ) -> None:
        self._page, self._document = page, document
        self._token, self._lock = secrets.token_urlsafe(24), threading.Lock()
        self._made: tuple[float, Any] = (-_CALM_S, None)
        self._server = self._listen(port)
        self.port = self._server.server_address[1]
        self._guard = Guard(self._token, int(self.port))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What a browser opens."""
        return f"http://{_HOST}:{self.port}/{self._token}/"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _listen(self, port: int) -> ThreadingHTTPServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S  # and one request for each connection, which ends with the server

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *words: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A browser that goes away in the middle is no news."""

        try:
            return Server((_HOST, port), Handler)
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"({error.strerror})"
            raise JoulemeshError(
                f"cannot listen on port {port}: it {why}; choose another, or 0 for any that is free"
            ) from None

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        token, _, rest = request.path.partition("?")[0].lstrip("/").partition("/")
        names = {name.lower(): value for name, value in request.headers.items()}
        why = self._guard.refusal(token, names)
        if why is not None:
            return _send(request, HTTPStatus.FORBIDDEN, "text/plain", why)
        if rest not in ("", "data"):
            return _send(request, HTTPStatus.NOT_FOUND, "text/plain", "there is no such page")
        try:
            document = self._newest()
        except JoulemeshError as error:
            return _send(request, HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error))
        if rest == "data":
            text = json.dumps(document, allow_nan=False, separators=(",", ":"))
            return _send(request, HTTPStatus.OK, "application/json", text)
        return _send(request, HTTPStatus.OK, "text/html", self._page(document))

    def _newest(self) -> Any:
        """The document; one serves several tabs."""
        with self._lock:
            if time.monotonic() - self._made[0] >= _CALM_S:
                self._made = (time.monotonic(), self._document())
            return self._made[1]


def _send(request: BaseHTTPRequestHandler, status: HTTPStatus, kind: str, text: str) -> None:
    data = text.encode()
    request.send_response(status)
    for name, value in HEADERS.items():
        if name != "Content-Security-Policy" or kind != "text/html":  # the page has its own
            request.send_header(name, value)
    request.send_header("Content-Type", f"{kind}; charset=utf-8")
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


def render_watch(title: str, document: Any) -> str:
    """The page as text.

    Args:
        title: what the fleet is called.
        document: what it draws first; it asks for newer ones.
    """
    return render_page(
        "watch.html",
        title=title,
        styles=("report.css", "deployment.css", "watch.css"),
        scripts=(*CHARTS, "watch.js"),
        data=document,
        live=True,
        course=course_charts(learned=False),  # hidden until the script has looked
        links_charts=link_charts(planned=False, linked=False),
    )


def watch_fleet(
    folder: Path,
    *,
    port: int = 0,
    curve: Curve | None = None,
    notes: Sequence[str] = (),
    ready: Callable[[str], None],
    wait: Callable[[], None],
) -> None:
    """Serve the page of a fleet.

    Args:
        folder: of the fleet, with the operator's certificate.
        port: on the loopback interface; 0 for any that is free.
        curve: the simulated curve of accuracy, or None.
        notes: what a reader should know, one line each.
        ready: called with the page's address.
        wait: comes back when it is to end.
    """
    document = Document(Fleet.load(folder), curve, notes)
    with FleetSource(folder) as source:
        server = _serve(document, source, port)
        try:
            ready(server.url)
            wait()
        finally:
            server.close()


def serve_node(
    folder: Path, port: int, say: Callable[[str], None]
) -> Callable[[Callable[[], Standing]], Callable[[], None]]:
    """What serves the same page on a device: it shows what this device knows.

    Args:
        folder: the device's.
        port: on the loopback interface; 0 for any that is free.
        say: told the page's address.

    Returns:
        A function that takes what tells how the device stands, serves the page, and gives what
        ends it.
    """

    def start(standing: Callable[[], Standing]) -> Callable[[], None]:
        made: list[tuple[Document, Source]] = []

        def document() -> Any:
            if not made:  # planned only if somebody looks
                note = f"This page is served by {standing().name}, and shows what it knows."
                made.append(
                    (Document(Fleet.load(folder), notes=[note]), NodeSource(folder, standing))
                )
            planned, source = made[0]
            return planned.made(source.look())

        title = Fleet.load(folder).folder.resolve().name
        server = PageServer(lambda found: render_watch(title, found), document, port)
        say(f"page at {server.url}")
        return server.close

    return start


def _serve(document: Document, source: Source, port: int) -> PageServer:
    return PageServer(
        lambda found: render_watch(document.title, found),
        lambda: document.made(source.look()),
        port,
    )
