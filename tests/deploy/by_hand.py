"""A node that a test drives event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from joulemesh.deploy.effects import (
    Begin,
    Commit,
    Delivered,
    Durable,
    Effect,
    Event,
    Plan,
    Planned,
    Received,
    Save,
    Saved,
    Send,
    Tick,
    Train,
    Trained,
)
from joulemesh.deploy.messages import Accepted, Beat, Body, Flood, Message, Recall, signed_text
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.view import Proof, Settings, View, Vote, fingerprint
from joulemesh.testing.fleets.hardware import Battery, VirtualSigner
from joulemesh.testing.fleets.setup import Setup, VirtualPlanner

TRIANGLE = ((0, 1), (0, 2), (1, 2))
SETTINGS = Settings(patience_s=8.0, starting_s=30.0, hang_s=20.0, minority_s=40.0)

Kind = TypeVar("Kind")


class ByHand:
    """One node of a small fleet; its disk and its planner answer at once unless told otherwise.

    Attributes:
        sent: (receiver, message) of all that it has sent, in order.
        effects: all effects, in order.
    """

    def __init__(
        self,
        device: int = 0,
        *,
        setup: Setup | None = None,
        battery_j: float = 1e6,
        settings: Settings = SETTINGS,
        state: Durable | None = None,
    ) -> None:
        self.epoch = 1
        self.device, self.setup = device, setup or Setup(3, TRIANGLE, "tree")
        self.planner = VirtualPlanner(self.setup)
        view = self.planner.first((battery_j,) * self.setup.devices)
        self.state = state or Durable(0, (view,), Commit(0, np.zeros(self.setup.size)))
        self.meter = Battery(self.setup, device, battery_j)
        signer = VirtualSigner(device)
        self.node = Node(
            device,
            self.setup.links,
            self.state,
            self.meter,
            settings,
            signer,
            epoch=self.epoch,
            spares=self.setup.spares,
        )
        self.now, self.disk, self.planning = 0.0, True, True
        self.unsaved: list[Save] = []
        self.effects: list[Effect] = []
        self._floods = self._beats = 0

    def handle(self, event: Event) -> list[Effect]:
        """Let something happen; what the node wants done, its disk's and planner's part too."""
        found = list(self.node.handle(event, self.now))
        self.effects += found
        for effect in list(found):
            if isinstance(effect, Save):
                self.unsaved.append(effect)
            elif isinstance(effect, Send):
                found += self.handle(Delivered(effect.token))
            elif isinstance(effect, Plan) and self.planning:
                found += self.handle(self.planned(effect.view))
        if self.disk:
            found += self.sync()
        return found

    def sync(self) -> list[Effect]:
        """The disk has written everything."""
        found = []
        while self.unsaved:
            save = self.unsaved.pop(0)
            self.state = save.state
            found += self.handle(Saved(save.token))
        return found

    def planned(self, view: View) -> Planned:
        plan = self.planner.plan(view, self.device)
        return Planned(view, None, plan) if isinstance(plan, str) else Planned(view, plan)

    def start(self) -> list[Effect]:
        return self.handle(Begin())

    def begin(self) -> ByHand:
        """Start it, and let its neighbours be heard."""
        self.start()
        for other in self.setup.neighbours(self.device):
            self.hear(other, Recall())
            self.hear(other, Beat(1, 0, 0, "training"))
        return self

    def hear(self, sender: int, message: Message) -> list[Effect]:
        """Let a message come; a beat is the newest of its sender, which this node reaches."""
        if isinstance(message, Beat):
            self._beats += 1
            message = replace(message, count=self._beats, echo=(1, 10**6))
        if isinstance(message, Recall):
            message = replace(message, epoch=message.epoch or self.epoch)
        return self.handle(Received(sender, message))

    def flood(self, origin: int, body: Body) -> list[Effect]:
        self._floods += 1
        return self.hear(origin, signed(Flood(origin, 1, self._floods, body)))

    def tick(self, seconds: float, beating: Sequence[int] = (1, 2), view: int = 0) -> list[Effect]:
        """Let time pass, in which some neighbours are heard."""
        found = []
        for _ in range(round(seconds)):
            self.now += 1.0
            for other in beating:
                found += self.hear(other, Beat(1, view, 0, "exchanging"))
            found += self.handle(Tick("tick"))
        return found

    def train(self, *, repeatable: bool = False) -> list[Effect]:
        """The learner is done with what was asked of it last."""
        asked = only(self.effects, Train)[-1]
        vector = np.arange(float(self.setup.size)) + asked.iteration
        return self.handle(Trained(asked.iteration, vector, {}, repeatable, attempt=asked.attempt))


def signed(flood: Flood) -> Flood:
    """A flood with its origin's signature."""
    return replace(flood, signature=VirtualSigner(flood.origin).sign(signed_text(flood)))


def proven(view: View, *voters: int, ballot: tuple[int, int] = (1, 1)) -> View:
    """A view with the votes of some members."""
    said = Accepted(view.number, ballot, fingerprint(view))
    votes = (signed(Flood(voter, 1, 99, said)) for voter in voters)
    kept = (Vote(one.origin, one.epoch, one.sequence, one.signature) for one in votes)
    return replace(view, proof=Proof(ballot, tuple(kept)))


def only(effects: Sequence[Any], kind: type[Kind]) -> list[Kind]:
    """The effects of a kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def said(effects: Sequence[Effect], kind: type[Kind]) -> list[Kind]:
    """The messages and bodies of floods of a kind among what is sent."""
    messages: list[Any] = [send.message for send in only(effects, Send)]
    bodies = [one.body if isinstance(one, Flood) else one for one in messages]
    return only(bodies, kind)
