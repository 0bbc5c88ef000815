"""The web application: the page, its files, and what the page asks for."""

from __future__ import annotations

__all__ = ["Studio", "make_app"]

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from joulemesh.errors import JoulemeshError, ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.studio.document import refusal_of
from joulemesh.studio.form import form
from joulemesh.studio.guard import HEADERS, Guard
from joulemesh.studio.jobs import Jobs
from joulemesh.studio.saving import ExistsError, save_scenario
from joulemesh.studio.session import Session
from joulemesh.views.asset import asset

_MOST_TABS = 32
_MOST_BYTES = 16 << 20  # of a request: a pasted table of 100,000 devices
_BEAT_S = 2.0
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_SCRIPTS = ("studio.js", *(f"studio-{part}.js" for part in ("form", "plan", "table", "training")))
_SHARED = ("svg", "export", "lines", "map", "rounds", "gantt", "devices", "flow")
_ASSETS = ("report.css", "studio.css", *(f"{part}.js" for part in _SHARED), *_SCRIPTS)


@dataclass(eq=False)
class Studio:
    """What the server knows: one session for each tab, and what is running for it.

    Attributes:
        scenario: that every tab begins with.
        path: of its file, if it has one.
        folder: for tables of devices.
        guard: who may ask.
        jobs: what is being trained.
    """

    scenario: Scenario
    path: Path | None
    folder: Path
    guard: Guard
    jobs: Jobs = field(default_factory=Jobs)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    _tabs: OrderedDict[str, Session] = field(default_factory=OrderedDict)

    def session(self, tab: str) -> Session:
        """A tab's session; the one that was not used for longest makes room for a new one."""
        if not (8 <= len(tab) <= 64 and tab.isalnum()):
            raise ScenarioError("a tab's number must have 8 to 64 letters and digits")
        if tab not in self._tabs:
            self._tabs[tab] = Session(self.scenario, self.folder)
            while len(self._tabs) > _MOST_TABS:
                self._tabs.popitem(last=False)
        self._tabs.move_to_end(tab)
        return self._tabs[tab]

    def answer(self, tab: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a tab asks, and tell how things are then."""
        session = self.session(tab)
        with session.lock:
            kind = order.get("do")
            if kind == "save":
                return self._save(session, order)
            if kind == "text":
                return {"text": session.scenario.to_toml(comments=True)}
            if kind in ("simulate", "tune"):
                self.jobs.start(tab, str(kind), session.scenario, order)
                return {"started": kind}
            if kind == "stop":
                self.jobs.stop(tab)
                return {"stopped": True}
            if kind == "advise":
                return session.advice()
            if kind == "gantt":
                return session.iteration(_whole(order.get("iteration")))
            if kind != "open":
                session.act(order)
            return {**session.view(), "path": self._named(session)}

    def _named(self, session: Session) -> str:
        if session.path is not None:
            return str(session.path)
        return str(self.path) if self.path is not None else "scenario.toml"

    def _save(self, session: Session, order: Mapping[str, Any]) -> dict[str, Any]:
        place = Path(str(order.get("path", "")))
        replace = order.get("replace") is True
        files = save_scenario(session.scenario, place, tables=self.folder, replace=replace)
        session.saved(files)
        return {"saved": [str(one) for one in files]}


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ScenarioError(f"{value!r:.40} is not a whole number") from None


def make_app(studio: Studio) -> Starlette:
    """The application that serves one studio.

    Args:
        studio: what it knows.
    """

    def guarded(handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def checked(request: Request) -> Response:
            why = studio.guard.refusal(request.path_params["token"], request.headers)
            if why is not None:
                return _text(why, 403)
            response: Response = await handler(request)
            return response

        return checked

    async def page(request: Request) -> Response:
        return _text(asset("studio.html"), kind="text/html")

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return _text("there is no such file", 404)
        return _text(asset(name), kind=_KINDS[Path(name).suffix])

    async def fields(request: Request) -> Response:
        return _json(await run_in_threadpool(form))

    async def order(request: Request) -> Response:
        return await _ordered(studio, request)

    async def events(request: Request) -> Response:
        stream = _events(studio, request.path_params["tab"])
        return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    routes = [
        Route("/{token}/", guarded(page)),
        Route("/{token}/form", guarded(fields)),
        Route("/{token}/files/{name}", guarded(file)),
        Route("/{token}/tab/{tab}", guarded(order), methods=["POST"]),
        Route("/{token}/events/{tab}", guarded(events)),
    ]
    return Starlette(routes=routes)


async def _ordered(studio: Studio, request: Request) -> Response:
    """Answer an order: what came of it, or why it is refused."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return _text("an order is JSON", 415)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            return _json({"refused": {"text": "that is more than 16 MiB", "field": None}}, 413)
    try:
        order = json.loads(bytes(body))
    except ValueError:
        order = None
    if not isinstance(order, dict):
        return _text("an order is a JSON object", 400)
    try:
        tab = request.path_params["tab"]
        return _json(await run_in_threadpool(studio.answer, tab, order))
    except ExistsError as error:
        return _json({"refused": refusal_of(error), "exists": True}, 409)
    except JoulemeshError as error:
        return _json({"refused": refusal_of(error)}, 422)


async def _events(studio: Studio, tab: str) -> AsyncIterator[str]:
    """What happens to a tab's job, and every two seconds that the server is there."""
    with studio.jobs.listen(tab) as queue:
        yield "retry: 1000\nevent: here\ndata: {}\n\n"
        closed = asyncio.ensure_future(studio.closing.wait())
        try:
            while not studio.closing.is_set():
                wanted = asyncio.ensure_future(queue.get())
                done, _ = await asyncio.wait(
                    {wanted, closed}, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if wanted in done:
                    kind, data = wanted.result()
                    yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
                else:
                    wanted.cancel()
                    yield "event: here\ndata: {}\n\n"
            yield "event: closing\ndata: {}\n\n"
        finally:
            closed.cancel()


def _text(text: str, status: int = 200, kind: str = "text/plain") -> Response:
    return Response(text, status, HEADERS, f"{kind}; charset=utf-8")


def _json(data: Any, status: int = 200) -> Response:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Response(text, status, HEADERS, "application/json")
