"""The web application: the page, its files, and what the page asks for."""

from __future__ import annotations

__all__ = ["Studio", "make_app"]

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulemesh.errors import JoulemeshError, ScenarioError
from joulemesh.files.bounded import parse_json
from joulemesh.scenario import Scenario
from joulemesh.studio.document import refusal_of
from joulemesh.studio.form import form
from joulemesh.studio.guard import HEADERS, Guard
from joulemesh.studio.jobs import Jobs
from joulemesh.studio.saving import ExistsError, save_scenario
from joulemesh.studio.session import Session
from joulemesh.views.asset import asset

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_MOST_TABS = 32
_MOST_BYTES = 16 << 20  # of a request: a pasted table of 100,000 devices
_BEAT_S = 2.0
_JSON = "application/json"
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_SCRIPTS = ("studio.js", *(f"studio-{part}.js" for part in ("form", "plan", "table", "training")))
_SHARED = ("svg", "export", "page", "lines", "map", "rounds", "gantt", "devices", "flow")
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
    from starlette.applications import Starlette  # of the extra studio
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    def answer(text: str, kind: str, status: int = 200) -> Response:
        return Response(text, status, HEADERS, f"{kind}; charset=utf-8")

    def guarded(handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def checked(request: Request) -> Response:
            why = studio.guard.refusal(request.path_params["token"], request.headers)
            if why is not None:
                return answer(why, "text/plain", 403)
            made: Response = await handler(request)
            return made

        return checked

    async def page(request: Request) -> Response:
        return answer(asset("studio.html"), "text/html")

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return answer("there is no such file", "text/plain", 404)
        return answer(asset(name), _KINDS[Path(name).suffix])

    async def fields(request: Request) -> Response:
        return answer(_json(await run_in_threadpool(form)), _JSON)

    async def order(request: Request) -> Response:
        body = await _body(request)
        if isinstance(body, tuple):
            return answer(body[1], "text/plain", body[0])
        status, text = await run_in_threadpool(_answered, studio, request.path_params["tab"], body)
        return answer(text, _JSON, status)

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


async def _body(request: Request) -> bytes | tuple[int, str]:
    """What a request sends, or the status and the words of a refusal."""
    if request.headers.get("content-type", "").partition(";")[0] != _JSON:
        return 415, "an order is JSON"
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            return 413, "that is more than 16 MiB"
    return bytes(body)


def _answered(studio: Studio, tab: str, body: bytes) -> tuple[int, str]:
    """Carry out an order: the status and the JSON of what came of it, or why it is refused."""
    try:
        order = parse_json(body)
        if not isinstance(order, dict):
            raise ScenarioError("an order is a JSON object")
        return 200, _json(studio.answer(tab, order))
    except ExistsError as error:
        return 409, _json({"refused": refusal_of(error), "exists": True})
    except JoulemeshError as error:
        return 422, _json({"refused": refusal_of(error)})
    except (ValueError, RecursionError):  # not JSON
        return 400, _json({"refused": refusal_of(ScenarioError("an order is a JSON object"))})


async def _events(studio: Studio, tab: str) -> AsyncIterator[str]:
    """What happens to a tab's job, and every two seconds that the server is there."""
    with studio.jobs.listen(tab) as queue:
        yield "retry: 1000\nevent: here\ndata: {}\n\n"
        closed = asyncio.ensure_future(studio.closing.wait())
        wanted = asyncio.ensure_future(queue.get())
        try:
            while not studio.closing.is_set():
                await asyncio.wait(
                    {wanted, closed}, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if wanted.done():
                    kind, data = wanted.result()
                    wanted = asyncio.ensure_future(queue.get())
                    yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
                else:
                    yield "event: here\ndata: {}\n\n"
            yield "event: closing\ndata: {}\n\n"
        finally:  # a page that is closed leaves no task behind
            closed.cancel()
            wanted.cancel()


def _json(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))
