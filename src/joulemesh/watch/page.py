"""The page of a fleet at work, and what serves it."""

from __future__ import annotations

__all__ = ["render_watch", "serve_node", "watch_fleet"]

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.operator.standing import Standing
from joulemesh.views.deployment.charts import Curve
from joulemesh.views.deployment.page import CHARTS, course_charts, link_charts
from joulemesh.views.page import render_page
from joulemesh.watch.document import Document
from joulemesh.watch.server import PageServer
from joulemesh.watch.sources import FleetSource, NodeSource, Source


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
