"""A node that follows the plan and knows of no failure, to test the simulation itself with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from joulemesh.deploy.effects import (
    Begin,
    Commit,
    Durable,
    Effect,
    End,
    Event,
    Meter,
    Plan,
    Planned,
    Received,
    Save,
    Saved,
    Send,
    Train,
    Trained,
    Undelivered,
    ViewPlan,
)
from joulemesh.deploy.messages import Part


class PlainNode:
    """Trains, exchanges step by step, commits; sends again what was not acknowledged."""

    def __init__(self, device: int, state: Durable, meter: Meter) -> None:
        self.device, self.state, self.meter = device, state, meter
        self.plan: ViewPlan | None = None
        self.early: dict[int, dict[tuple[int, int], Part]] = {}
        self.sent: list[Send] = []
        self.iteration = 0

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Begin):
            return [Plan(self.state.views[0])]
        if isinstance(event, Planned):
            self.plan = event.plan
            return self.train()
        if isinstance(event, Trained):
            return self.exchange(event)
        if isinstance(event, Received) and isinstance(event.message, Part):
            part = event.message
            of = self.early.setdefault(part.iteration, {})
            of.setdefault((part.step, event.sender), part)
            return self.pump() if part.iteration == self.iteration else []
        if isinstance(event, Undelivered):
            again = replace(self.sent[event.token], token=len(self.sent))
            return [self.send(again)]
        if isinstance(event, Saved):
            return self.train()
        return []

    def train(self) -> list[Effect]:
        assert self.plan is not None
        done = self.state.commit.iteration
        if done == self.plan.last:
            return [End("all done", complete=True)]  # though others may still need it
        rounds = self.plan.rounds(done + 1)
        self.meter.train(rounds)
        return [Train(done + 1, rounds, self.state.commit)]

    def exchange(self, event: Trained) -> list[Effect]:
        assert self.plan is not None
        self.iteration, self.trained = event.iteration, event
        self.peer: Any = self.plan.peer(event.iteration)
        route = self.plan.route(event.iteration)
        self.step = -1
        self.expected: dict[int, set[int]] = {}
        if self.peer is None or route is None:
            return self.commit(event.vector)
        for step, sender, to, _ in route.messages():
            if to == self.device:
                self.expected.setdefault(step, set()).add(sender)
        self.length = route.length
        self.peer.start(event.vector)
        return self.pump()

    def pump(self) -> list[Effect]:
        """Send step after step, as far as what has come allows."""
        effects: list[Effect] = []
        here = self.early.setdefault(self.iteration, {})
        while self.peer is not None:
            if self.step >= 0:
                senders = self.expected.get(self.step, set())
                if any((self.step, sender) not in here for sender in senders):
                    break
                for sender in sorted(senders):
                    self.peer.receive(self.step, sender, here[self.step, sender].payload)
            self.step += 1
            if self.step == self.length:
                vector, self.peer = self.peer.finish(), None
                return [*effects, *self.commit(vector)]
            for to, payload in self.peer.send(self.step):
                part = Part(0, self.iteration, self.step, payload)
                effects.append(self.send(Send(len(self.sent), to, part, 0.5)))
        return effects

    def send(self, send: Send) -> Send:
        assert isinstance(send.message, Part)
        self.sent.append(send)
        self.meter.send(send.to, send.message.payload.nbytes)
        return send

    def commit(self, vector: Any) -> list[Effect]:
        commit = Commit(self.iteration, vector, self.trained.memory)
        self.state = replace(self.state, commit=commit)
        return [Save(self.iteration, self.state)]
