"""The JSON document that the page draws, made of what is known of each device."""

from __future__ import annotations

__all__ = ["Document"]

import math
import time
from collections.abc import Sequence
from typing import Any

from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.local.following import Planned
from joulemesh.deploy.record.again import planned_again
from joulemesh.deploy.record.chronicle import Seen, views_of
from joulemesh.deploy.record.costs import Costs, planned
from joulemesh.deploy.record.history import History
from joulemesh.deploy.record.receipt import Receipt
from joulemesh.planning.static import plan_of
from joulemesh.views.deployment.charts import Curve, chart_data, event_words
from joulemesh.views.deployment.page import DeploymentView
from joulemesh.views.words import Subject
from joulemesh.watch.glimpse import Glimpse

_MOST_EVENTS = 200


class Document:
    """Turns what is known of the devices into what the page draws.

    Args:
        fleet: that is watched.
        curve: the simulated curve of accuracy, or None.
        notes: what a reader should know, one line each.
    """

    def __init__(self, fleet: Fleet, curve: Curve | None = None, notes: Sequence[str] = ()) -> None:
        self.fleet, self._curve, self._notes = fleet, curve, tuple(notes)
        self.plan = plan_of(fleet.ground())
        self._before = planned(self.plan)
        self._parts = [Planned.of(self.plan, device) for device in range(len(fleet.names))]
        self._after: tuple[tuple[str, ...], Costs] = ((), self._before)
        self._drawn: tuple[list[History], dict[str, Any]] = ([], {})
        self._version = 0

    @property
    def title(self) -> str:
        """What the fleet is called."""
        return self.plan.scenario.name or self.fleet.folder.resolve().name

    def made(self, glimpses: Sequence[Glimpse]) -> dict[str, Any]:
        """The document.

        Args:
            glimpses: of all devices, in their order.
        """
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
        part, done = self._parts[number], min(known["iteration"], self.plan.iterations)
        past = seen.history
        taken = past.column("train_s") + past.column("exchange_s")
        return {
            "name": seen.standing.name,
            "state": seen.state,
            "answers": seen.answers,
            "heard_at": seen.heard_at or _known(past.last_at),
            "why": "" if seen.state == "ended" else seen.why or seen.standing.trouble,
            **known,
            "planned_j": float(part.joules[done]),
            "battery_j": part.battery_j,
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
        receipt = Receipt.of(
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
        """The newest events of all devices, newest first: when, who, what."""
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
    """Who is a member of the newest view."""
    if not views:
        return [True] * devices
    inside = set(views[-1].view.members)
    return [device in inside for device in range(devices)]


def _is(one: History, other: History) -> bool:
    return one is other


def _known(seconds: float) -> float:
    return float(seconds) if math.isfinite(seconds) else 0.0
