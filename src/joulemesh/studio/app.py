"""The studio: a session for each tab, and what its page asks for."""

from __future__ import annotations

import json
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty
from threading import Lock
from typing import Any

from joulemesh.base.errors import Edit, JoulemeshError, ScenarioError, in_words
from joulemesh.base.files import parse_json
from joulemesh.planning.static import apply_edits
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import typed_value
from joulemesh.studio.document import Shown, plan_difference, show
from joulemesh.studio.form import form
from joulemesh.studio.jobs import Jobs
from joulemesh.studio.saving import ExistsError, save_scenario
from joulemesh.studio.server import Answer, PageServer
from joulemesh.studio.table import folded, with_cells, with_table
from joulemesh.views.charts import iteration_data
from joulemesh.views.page import asset

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
    i, j = sorted(map(int, order["link"]))
    gone = [*scenario.network.without, (i, j)]
    return scenario.override({"network.without": gone}), f"remove the link {i}–{j}"


def _mend(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    i, j = sorted(map(int, order["link"]))
    gone = [link for link in scenario.network.without if link != (i, j)]
    return scenario.override({"network.without": gone}), f"put back the link {i}–{j}"


def _kill(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    device, iteration = int(order["device"]), int(order["iteration"])
    others = [pair for pair in scenario.devices.leave if pair[0] != device]
    leave = [*others, (device, iteration)]
    return scenario.override({"devices.leave": leave}), f"kill device {device}"


def _revive(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    device = int(order["device"])
    leave = [pair for pair in scenario.devices.leave if pair[0] != device]
    return scenario.override({"devices.leave": leave}), f"revive device {device}"


_ON_MAP = {"cut": _cut, "mend": _mend, "kill": _kill, "revive": _revive}


_MOST_TABS = 32
_BEAT_S = 2.0
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
    jobs: Jobs = field(default_factory=Jobs)  # what is being trained
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

    def respond(self, path: str, body: bytes | None) -> Answer:
        """The page, its files, the form, or what came of a tab's order."""
        kind, _, name = path.partition("/")
        if kind == "tab" and body is not None:
            status, text = _answered(self, name, body)
            return Answer(text, status=status)
        if kind == "events":
            return Answer(self._events(name), "text/event-stream")
        if path == "form":
            return Answer(_json(form()))
        if path == "":
            return Answer(asset("studio.html"), "text/html")
        if kind == "files" and name in _ASSETS:
            return Answer(asset(name), _KINDS[Path(name).suffix])
        return Answer.refusal(404, "there is no such page")

    def _events(self, tab: str) -> Iterator[str]:
        """What happens to a tab's job, and every two seconds that the server is there."""
        with self.jobs.listen(tab) as queue:
            yield "retry: 1000\nevent: here\ndata: {}\n\n"
            kind = ""
            while kind != "closing":
                try:
                    kind, data = queue.get(timeout=_BEAT_S)
                except Empty:
                    kind, data = "here", {}
                yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ScenarioError(f"{value!r:.40} is not a whole number") from None


def serve(
    scenario: Scenario,
    *,
    path: Path | None = None,
    port: int = 0,
    load: Sequence[Path] = (),
    ready: Callable[[str], None],
    wait: Callable[[], None],
) -> None:
    """Serve the studio as long as ``wait`` takes."""
    with tempfile.TemporaryDirectory(prefix="joulemesh-") as folder:
        studio = Studio(scenario, path, Path(folder), Jobs(load))
        server = PageServer(studio.respond, port)
        try:
            ready(server.url)
            wait()
        finally:
            studio.jobs.close()
            server.close()


def _answered(studio: Studio, tab: str, body: bytes) -> tuple[int, str]:
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


def _json(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))
