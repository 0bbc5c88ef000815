"""The web application: the page, its files, and what the page asks for."""

from __future__ import annotations

__all__ = ["Session", "Studio", "make_app"]

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from joulemesh.base.errors import Edit, JoulemeshError, ScenarioError, in_words
from joulemesh.base.files import parse_json
from joulemesh.planning.static import apply_edits
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import typed_value
from joulemesh.studio.document import Shown, plan_difference, show
from joulemesh.studio.form import form
from joulemesh.studio.guard import HEADERS, Guard
from joulemesh.studio.jobs import Jobs
from joulemesh.studio.saving import ExistsError, save_scenario
from joulemesh.studio.table import folded, with_cells, with_table
from joulemesh.views.charts import iteration_data
from joulemesh.views.page import asset

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


_MOST_STEPS = 200
_MOST_BARS = 1_000  # of a time line


@dataclass(frozen=True)
class Step:
    """The scenario after one change, and what the change was."""

    scenario: Scenario  # as it is then
    words: str  # what was done, for the button that takes it back


@dataclass(eq=False)
class Session:
    """One tab."""

    scenario: Scenario
    folder: Path
    lock: Lock = field(default_factory=Lock, repr=False)
    _past: list[Step] = field(default_factory=list, init=False)
    _future: list[Step] = field(default_factory=list, init=False)
    _pinned: dict[str, Any] | None = field(default=None, init=False)
    _known: tuple[Scenario, Shown] | None = field(default=None, init=False)
    revision: int = field(default=0, init=False)
    path: Path | None = field(default=None, init=False)

    # What the page shows ------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """The document of the scenario as it is now, and what can be taken back."""
        shown = self._shown().document
        pinned = self._pinned
        return {
            **shown,
            "revision": self.revision,
            "undo": self._past[-1].words if self._past else "",
            "redo": self._future[-1].words if self._future else "",
            "pinned": pinned,
            "difference": None if pinned is None else plan_difference(pinned, shown),
        }

    def _shown(self) -> Shown:
        if self._known is None or self._known[0] is not self.scenario:
            self._known = self.scenario, show(self.scenario)
        return self._known[1]

    def iteration(self, number: int) -> dict[str, Any]:
        """The time line of any iteration; empty without a plan."""
        plan = self._shown().plan
        return {} if plan is None else {"gantt": iteration_data(plan, number, _MOST_BARS)}

    def advice(self) -> dict[str, Any]:
        """What binds the plan, what is left over, and the change that would help most."""
        plan, toml = self._shown().plan, self.scenario.to_toml(comments=True)
        if plan is None:
            return {"text": "", "edits": None, "revision": self.revision, "toml": toml}
        answer = plan.answer
        change = answer.change
        edits = None if change is None else [asdict(change.edit)]
        words = "" if change is None else in_words([change.edit], plan.names)
        told = {"text": answer.text, "edits": edits, "words": words}
        return {**told, "revision": self.revision, "toml": toml}

    def saved(self, files: Sequence[Path]) -> None:
        """Go on with the files that were written: a device table is now the one beside them."""
        self.path = files[0]
        if len(files) > 1:
            self.scenario = self.scenario.override({"devices.table": str(files[1].resolve())})

    # What is done to it -------------------------------------------------------------------------

    def act(self, order: Mapping[str, Any]) -> None:
        """Do what the page asks."""
        kind = order.get("do")
        plain = {"undo": self._undo, "redo": self._redo, "pin": self._pin, "unpin": self._unpin}
        if kind in plain:
            plain[kind]()
        else:
            changed, words = _changed(self.scenario, order, self.folder)
            self._take(folded(changed, self.folder), words)
        self.revision += 1

    def _take(self, scenario: Scenario, words: str) -> None:
        self._past.append(Step(self.scenario, words))
        del self._past[:-_MOST_STEPS]
        self._future.clear()
        self.scenario = scenario

    def _undo(self) -> None:
        if self._past:
            step = self._past.pop()
            self._future.append(Step(self.scenario, step.words))
            self.scenario = step.scenario

    def _redo(self) -> None:
        if self._future:
            step = self._future.pop()
            self._past.append(Step(self.scenario, step.words))
            self.scenario = step.scenario

    def _pin(self) -> None:
        self._pinned = self._shown().document

    def _unpin(self) -> None:
        self._pinned = None


def _changed(scenario: Scenario, order: Mapping[str, Any], folder: Path) -> tuple[Scenario, str]:
    """The scenario after a change, and the change in a few words."""
    kind = order.get("do")
    try:
        if kind == "set":
            texts = {name: str(text) for name, text in order["fields"].items()}
            typed = {n: typed_value(text, n) for n, text in texts.items() if text.strip()}
            emptied = scenario.without(*(texts.keys() - typed.keys()))
            return emptied.override(typed, source="studio"), ", ".join(texts)
        if kind == "edits":
            edits = [Edit(**one) for one in order["edits"]]
            return apply_edits(scenario, edits), in_words(edits)
        if kind == "preset":
            return Scenario.preset(str(order["name"])), f"preset {order['name']}"
        if kind == "toml":
            return Scenario.from_toml(str(order["text"])), "open a file"
        if kind == "table":
            return with_table(scenario, str(order["text"]), folder), "table of devices"
        if kind == "cells":
            cells = {
                str(column): {int(device): value for device, value in own.items()}
                for column, own in order["changes"].items()
            }
            return with_cells(scenario, cells, folder), ", ".join(cells)
        if kind == "move":
            device = int(order["device"])
            cells = {name: {device: float(order[name])} for name in ("x_m", "y_m")}
            return with_cells(scenario, cells, folder), f"move device {device}"
        if kind in _ON_MAP:
            return _ON_MAP[kind](scenario, order)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise ScenarioError(f"the page asks for {kind!r:.40} without what it takes") from None
    raise ScenarioError(f"there is nothing to do for {kind!r:.40}")


def _cut(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Take a link away."""
    i, j = sorted(map(int, order["link"]))
    gone = [*scenario.network.without, (i, j)]
    return scenario.override({"network.without": gone}), f"remove the link {i}–{j}"


def _mend(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Put a link back."""
    i, j = sorted(map(int, order["link"]))
    gone = [link for link in scenario.network.without if link != (i, j)]
    return scenario.override({"network.without": gone}), f"put back the link {i}–{j}"


def _kill(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Let a device leave for good."""
    device, iteration = int(order["device"]), int(order["iteration"])
    others = [pair for pair in scenario.devices.leave if pair[0] != device]
    leave = [*others, (device, iteration)]
    return scenario.override({"devices.leave": leave}), f"kill device {device}"


def _revive(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Let a device stay after all."""
    device = int(order["device"])
    leave = [pair for pair in scenario.devices.leave if pair[0] != device]
    return scenario.override({"devices.leave": leave}), f"revive device {device}"


_ON_MAP = {"cut": _cut, "mend": _mend, "kill": _kill, "revive": _revive}


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
    """What the server knows: one session for each tab, and what is running for it."""

    scenario: Scenario  # that every tab begins with
    path: Path | None  # of its file, if it has one
    folder: Path  # for tables of devices
    guard: Guard  # who may ask
    jobs: Jobs = field(default_factory=Jobs)  # what is being trained
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
    """The application that serves one studio."""
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
        return 409, _json({"refused": error.data, "exists": True})
    except JoulemeshError as error:
        return 422, _json({"refused": error.data})
    except (ValueError, RecursionError):  # not JSON
        return 400, _json({"refused": ScenarioError("an order is a JSON object").data})


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
