"""A fleet at work: what devices answer and write, as a page that asks for news."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.local.local import Planned
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import (
    FileTail,
    History,
    JournalTail,
    Seen,
    history_of,
    views_of,
)
from joulemesh.deploy.record.receipt import Costs, Receipt, planned, planned_again
from joulemesh.planning.static import plan_of
from joulemesh.studio.server import Answer, PageServer
from joulemesh.views.deployment import CHARTS, Curve, DeploymentView, chart_data, event_words
from joulemesh.views.page import render_page
from joulemesh.views.words import Subject

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator


@dataclass(frozen=True, eq=False)
class Glimpse:
    """What is known of one device."""

    standing: Standing  # what it said when it last answered; only number and name if it never did
    history: History  # what its journal tells, as far as it could be read
    answers: bool = True  # does it answer at the moment?
    heard_at: float = 0.0  # when it last did, in Unix seconds; 0 if it never did
    why: str = ""  # why it does not answer, or why its journal cannot be read; empty if neither
    asked: bool = True  # has it been asked at all?

    @property
    def state(self) -> str:
        if self.answers:
            return self.standing.phase or "up"
        if not self.asked:
            return "being asked"
        end = self.history.end
        if end is not None:
            return "ended" if end.figures.get("complete") else "stopped"
        return "silent" if self.heard_at or self.history.events else "not seen"

    def figures(self) -> dict[str, Any]:
        """Joules and seconds so far, from whichever source is newer: the device or its journal."""
        now, past = self.standing, self.history
        known: dict[str, Any] = {
            name: getattr(now, name) for name in ("iteration", "view", "spent_j", "accuracy")
        }
        if len(past.iterations) and past.iterations[-1] >= now.iteration:
            known["iteration"] = int(past.iterations[-1])
            known["view"] = max(now.view, int(past.column("view")[-1]))
            known["spent_j"] = max(now.spent_j, float(past.column("spent_j")[-1]))
        if len(past.evaluations) and known["accuracy"] is None:
            known["accuracy"] = float(past.evaluations[-1, 1])
        return known


_MOST_EVENTS = 200


class Document:
    """Turns what is known of the devices into what the page draws."""

    def __init__(self, fleet: Fleet, curve: Curve | None = None, notes: Sequence[str] = ()) -> None:
        self.fleet, self._curve, self._notes = fleet, curve, tuple(notes)
        self.plan = plan_of(fleet.ground())
        self._before = planned(self.plan)
        self._part = Planned.of(self.plan)
        self._after: tuple[tuple[str, ...], Costs] = ((), self._before)
        self._drawn: tuple[list[History], dict[str, Any]] = ([], {})
        self._version = 0

    @property
    def title(self) -> str:
        return self.plan.scenario.name or self.fleet.folder.resolve().name

    def made(self, glimpses: Sequence[Glimpse]) -> dict[str, Any]:
        histories = [one.history for one in glimpses]
        return {
            "at": time.time(),
            "iterations": self.plan.iterations,
            "deadline_s": self.plan.scenario.budget.deadline_s,
            "total_s": self.plan.scenario.budget.total_s,
            "devices": [self._device(one) for one in glimpses],
            "notes": list(self._notes),
            **self._charts(histories),
        }

    def _device(self, seen: Glimpse) -> dict[str, Any]:
        number, known = seen.standing.device, seen.figures()
        part, done = self._part, min(known["iteration"], self.plan.iterations)
        past = seen.history
        taken = past.column("train_s") + past.column("exchange_s")
        return {
            "name": seen.standing.name,
            "state": seen.state,
            "answers": seen.answers,
            "heard_at": seen.heard_at or _known(past.last_at),
            "why": "" if seen.state == "ended" else seen.why or seen.standing.trouble,
            **known,
            "planned_j": float(part.joules[done, number]),
            "battery_j": float(part.battery_j[number]),
            "elapsed_s": seen.standing.elapsed_s or None,
            "planned_s": float(part.seconds[done]),
            "last_s": float(taken[-1]) if taken.size else None,
            "waiting": list(seen.standing.waiting) if seen.answers else [],
        }

    def _charts(self, histories: list[History]) -> dict[str, Any]:
        """What charts show; made again only where some journal has grown."""
        before, drawn = self._drawn
        same = len(before) == len(histories) and all(map(_is, before, histories))
        if same and drawn:
            return drawn
        self._version += 1
        views = views_of(histories)
        receipt = Receipt(
            histories,
            self._before,
            self._planned_again(views),
            fleet=self.fleet.id,
            plan=self.fleet.digest,
            battery_j=self.plan.energy_budget_j,
            deadline_s=self.plan.deadline_s,
            reserve=self.fleet.settings.reserve,
        )
        view = DeploymentView.of(
            self.plan, receipt, histories, curve=self._curve, subject=Subject(self.title)
        )
        drawn = {
            **chart_data(view, cells=False),
            "version": self._version,
            "events": self._events(histories),
            "members": _members(views, len(histories)),
        }
        self._drawn = (histories, drawn)
        return drawn

    def _planned_again(self, views: Sequence[Seen]) -> Costs:
        key = tuple(seen.view.digest for seen in views)
        if key != self._after[0]:
            self._after = (
                key,
                planned_again(self.plan, self._before, views, self.fleet.settings.reserve)[0],
            )
        return self._after[1]

    def _events(self, histories: Sequence[History]) -> list[list[Any]]:
        found = sorted((event for one in histories for event in one.events), key=lambda e: -e.at)
        names = self.fleet.names
        return [
            [event.at, names[event.device], _words(event, names)] for event in found[:_MOST_EVENTS]
        ]


def _words(event: Any, names: Sequence[str]) -> str:
    """An event in words; a view says who is in it."""
    if event.kind != "view":
        return event_words(event, names)
    said = event.figures
    members = len(said.get("members", ()))
    return f"view {said.get('number')}: {members} devices from iteration {said.get('start')} on"


def _members(views: Sequence[Seen], devices: int) -> list[bool]:
    if not views:
        return [True] * devices
    inside = set(views[-1].view.members)
    return [device in inside for device in range(devices)]


def _is(one: History, other: History) -> bool:
    return one is other


def _known(seconds: float) -> float:
    return float(seconds) if math.isfinite(seconds) else 0.0


_RUN, _JOURNALS = "run", "journals"
_AT_ONCE = 32
_EVERY_S, _RELOAD_S = 0.5, 2.0


class Source(Protocol):
    """Tells what is known of all devices of a fleet."""

    def look(self) -> list[Glimpse]:
        """What is known now, in the order of the devices."""
        ...


class FleetSource:
    """Asks all devices by the operator's certificate; reads journals that lie on this machine."""

    def __init__(self, folder: Path) -> None:
        from joulemesh.deploy.operator.operator import Operator

        self._folder, self._operator = folder, Operator.load(folder)
        self._following = [
            _Following(folder, device, name)
            for device, name in enumerate(self._operator.fleet.names)
        ]
        self._loop = asyncio.new_event_loop()
        self._all: asyncio.Task[None] = self._loop.create_task(self._ask_all())
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> list[Glimpse]:
        """What the devices said last, and what they have written."""
        return [one.glimpse for one in self._following]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._all)
        self._loop.close()

    async def _ask_all(self) -> None:
        room = asyncio.Semaphore(_AT_ONCE)

        async def ask(one: _Following) -> None:
            while True:
                async with room:
                    await one.look(self._operator)
                await asyncio.sleep(_EVERY_S)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._reload())
            for one in self._following:
                group.create_task(ask(one))

    async def _reload(self) -> None:
        while True:
            await asyncio.sleep(_RELOAD_S)
            with suppress(JoulemeshError):  # it is being written
                self._operator = type(self._operator).load(self._folder)


class _Following:
    """What is known of one device, from its answers and its journal."""

    def __init__(self, folder: Path, device: int, name: str) -> None:
        near = (folder / DEVICES / name / _RUN, folder / _JOURNALS / name)
        self._near = [FileTail(place, device, name) for place in near]
        self._far = JournalTail(device, name)
        nothing = history_of((), device, name)
        self.glimpse = Glimpse(Standing(device, name), nothing, answers=False, asked=False)

    async def look(self, operator: Operator) -> None:
        """Ask it, and read what it has written since the last time."""
        try:
            self.glimpse = await self._looked(operator)
        except (OSError, JoulemeshError) as error:  # a journal on this machine that cannot be read
            self.glimpse = replace(self.glimpse, answers=False, asked=True, why=str(error))

    async def _looked(self, operator: Operator) -> Glimpse:
        before = self.glimpse
        said = await operator.standing(before.standing.device)
        answers, why = bool(said.phase), said.trouble if not said.phase else ""
        tails: list[JournalTail] = [tail for tail in self._near if tail.look()]
        if not tails:
            tails = [self._far]
            if answers:
                why = await operator.follow(self._far)
        return Glimpse(
            said if answers else before.standing,
            max((tail.history() for tail in tails), key=lambda one: len(one.iterations)),
            answers,
            time.time() if answers else before.heard_at,
            why,
        )


class NodeSource:
    """What one device knows: itself, and of the others who is a member."""

    def __init__(self, folder: Path, standing: Callable[[], Standing]) -> None:
        self._standing, self._names = standing, Fleet.load(folder).names
        own = standing()
        self._tail = FileTail(folder / _RUN, own.device, self._names[own.device])

    def look(self) -> list[Glimpse]:
        """How this device stands, and that the others are not seen from here."""
        own = self._standing()
        self._tail.look()
        unseen = f"cannot be seen from {self._names[own.device]}"
        return [
            Glimpse(replace(own, name=name), self._tail.history(), heard_at=time.time())
            if device == own.device
            else Glimpse(
                Standing(device, name), history_of((), device, name), answers=False, why=unseen
            )
            for device, name in enumerate(self._names)
        ]


_CALM_S = 0.5  # a document serves all who ask within this time


class WatchPage:
    """Answers with the page of a fleet at work, and with newer data for it."""

    def __init__(self, title: str, document: Callable[[], Any]) -> None:
        self._title, self._document, self._lock = title, document, threading.Lock()
        self._made: tuple[float, Any] = (-_CALM_S, None)

    def respond(self, path: str, body: bytes | None) -> Answer:
        if path not in ("", "data") or body is not None:
            return Answer.refusal(404, "there is no such page")
        with self._lock:
            if time.monotonic() - self._made[0] >= _CALM_S:
                self._made = (time.monotonic(), self._document())
            document = self._made[1]
        if path == "data":
            return Answer(json.dumps(document, allow_nan=False, separators=(",", ":")))
        return Answer(render_watch(self._title, document), "text/html", policy=False)


def render_watch(title: str, document: Any) -> str:
    return render_page(
        "watch.html",
        title=title,
        styles=("report.css", "deployment.css", "watch.css"),
        scripts=(*CHARTS, "watch.js"),
        data=document,
        live=True,
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
    document = Document(Fleet.load(folder), curve, notes)
    with FleetSource(folder) as source:
        page = WatchPage(document.title, lambda: document.made(source.look()))
        server = PageServer(page.respond, port)
        try:
            ready(server.url)
            wait()
        finally:
            server.close()


def serve_node(
    folder: Path, port: int, say: Callable[[str], None]
) -> Callable[[Callable[[], Standing]], Callable[[], None]]:
    """What serves the same page on a device: it shows what this device knows."""

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
        server = PageServer(WatchPage(title, document).respond, port)
        say(f"page at {server.url}")
        return server.close

    return start
