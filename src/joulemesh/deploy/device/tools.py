"""What a node is driven with, and what drives it: the seams of the runner."""

from __future__ import annotations

__all__ = ["Machine", "Planner", "Tools"]

from dataclasses import dataclass
from typing import Protocol

from joulemesh.deploy.device.ceiling import Ceiling
from joulemesh.deploy.device.journal import Journal
from joulemesh.deploy.device.meter import RunMeter
from joulemesh.deploy.device.store import Store
from joulemesh.deploy.device.training import Training
from joulemesh.deploy.effects import Effect, Event, Planned
from joulemesh.deploy.transport import Transport
from joulemesh.deploy.view import View


class Machine(Protocol):
    """A node's rules: see `effects`."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event; give what is to be done."""


class Planner(Protocol):
    """Makes plans of views; called in a thread of its own."""

    def answer(self, view: View) -> Planned:
        """The plan of a view, or why there is none."""


@dataclass(frozen=True)
class Tools:
    """What a node is driven with.

    Attributes:
        transport: carries messages.
        store: keeps the state.
        training: the learner, and when to evaluate.
        planner: makes plans.
        meter: counts joules.
        ceiling: what may have been spent by the time of a crash.
        journal: is told what happens.
    """

    transport: Transport
    store: Store
    training: Training
    planner: Planner
    meter: RunMeter
    ceiling: Ceiling
    journal: Journal
