"""One virtual device: a node with a disk, a battery, a learner and a planner around it."""

from __future__ import annotations

__all__ = ["Fleet", "Machine", "NodeLike"]

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from joulemesh.deploy.effects import (
    Begin,
    Delivered,
    Durable,
    Effect,
    End,
    Event,
    Plan,
    Planned,
    Received,
    Save,
    Saved,
    SaveFailed,
    Send,
    SetTimer,
    StopAsked,
    Tick,
    Train,
    Trained,
    Undelivered,
)
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport.memory import Clock, MemoryNetwork
from joulemesh.deploy.virtual.hardware import Battery, Disk, train
from joulemesh.deploy.virtual.setup import VirtualPlanner


class NodeLike(Protocol):
    """A node's state machine."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """What follows from an event."""


class Fleet(Protocol):
    """What a machine needs of the fleet around it."""

    clock: Clock
    network: MemoryNetwork
    random: Random

    def make_node(self, machine: Machine) -> NodeLike:
        """The node of a machine that is started, from the state on its disk."""

    def handled(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """A node has handled an event."""

    def durable(self, machine: Machine, state: Durable) -> None:
        """A state has reached a machine's disk."""

    def ended(self, machine: Machine, end: End) -> None:
        """A node has ended."""


class Machine:
    """Drives one node, and does to it what a real machine might.

    Args:
        device: its number.
        fleet: around it.
        disk: its disk.
        battery: its battery.
        planner: its planner.
        double: it has another's name, and an address that nobody sends to.
    """

    def __init__(
        self,
        device: int,
        fleet: Fleet,
        disk: Disk,
        battery: Battery,
        planner: VirtualPlanner,
        *,
        double: bool = False,
    ) -> None:
        self.device, self.fleet, self.planner, self.double = device, fleet, planner, double
        self.disk, self.battery = disk, battery
        self.node: NodeLike | None = None
        self.end: End | None = None
        self.since = 0.0  # it has been there without a break
        self.slow = 1.0  # factor of the learner's seconds
        self.epoch = 0  # of its process
        self._life = 0  # what was asked for in an earlier life concerns nobody
        self._frozen = False
        self._waiting: list[tuple[Event, Callable[[], None] | None]] = []
        self._timers: dict[str, int] = {}
        self._offset_s = 0.0
        self._idle_at = 0.0  # one training at a time
        self._carry: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Train: self._train,
            Save: self._save,
            Plan: self._plan,
            SetTimer: self._set_timer,
            End: self._end,
        }

    @property
    def up(self) -> bool:
        """Is its process there, frozen or not?"""
        return self.node is not None

    # What happens to it -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, from what the disk holds; its clock begins anywhere."""
        if self.up:
            return
        self._life += 1
        self.since = self.fleet.clock.now
        self._offset_s = self.fleet.random.random() * 1000.0
        life = f"epoch {self.device} {self._life} {self.double}"
        self.epoch = Random(life).getrandbits(48)
        self.end, self._idle_at = None, 0.0
        self._timers.clear()
        self.node = self.fleet.make_node(self)
        if not self.double:
            self.fleet.network.attach(self.device, self._take)
        self.handle(Begin())

    def crash(self) -> None:
        """Power is gone."""
        if self.up:
            self._gone()
            for state in self.disk.crash():
                self.fleet.durable(self, state)

    def stop(self) -> None:
        """The system asks the node to stop."""
        self._happen(StopAsked("the system is going down"))

    def freeze(self) -> None:
        """The process gets no time, but stays."""
        self._frozen = self.up

    def thaw(self) -> None:
        """It gets time again; everything that came meanwhile comes at once."""
        self._frozen, self.since = False, self.fleet.clock.now
        waiting, self._waiting = self._waiting, []
        for event, taken in waiting:
            self._happen(event, taken)

    def _gone(self) -> None:
        self.node = None
        self._life += 1
        self._frozen = False
        self._waiting.clear()
        if not self.double:
            self.fleet.network.detach(self.device)

    # Events -------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Let the node handle an event, and carry out what follows."""
        if self.node is None:
            return
        effects = self.node.handle(event, self.fleet.clock.now + self._offset_s)
        self.fleet.handled(self, event, effects)
        life = self._life
        for effect in effects:
            carry = self._carry.get(type(effect))
            if carry is not None and self._life == life:
                carry(effect)

    def _happen(self, event: Event, taken: Callable[[], None] | None = None) -> None:
        if self._frozen:
            self._waiting.append((event, taken))
        elif self.up:
            if taken is not None:
                taken()
            self.handle(event)

    def _later(self, seconds: float, event: Event) -> None:
        self.fleet.clock.after(seconds, self._if_alive, self._life, event)

    def _if_alive(self, life: int, event: Event) -> None:
        if life == self._life:
            self._happen(event)

    def _take(self, sender: int, message: Message, taken: Callable[[], None]) -> None:
        self._happen(Received(sender, message), taken)

    # Effects ------------------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        self.battery.use(effect)
        life, token = self._life, effect.token

        def told(reason: str) -> None:
            self._if_alive(life, Undelivered(token, reason) if reason else Delivered(token))

        self.fleet.network.send(self.device, effect.to, effect.message, effect.within_s, told)

    def _train(self, effect: Train) -> None:
        self.battery.use(effect)
        result = train(self.device, effect.iteration, effect.rounds, effect.start)
        setup = self.planner.setup
        seconds = effect.rounds * setup.round_s(self.device) * self.slow
        now = self.fleet.clock.now
        self._idle_at = max(self._idle_at, now) + seconds * (0.8 + 0.4 * self.fleet.random.random())
        self._later(self._idle_at - now, Trained(effect.iteration, *result))

    def _save(self, effect: Save) -> None:
        seconds = self.disk.write(effect, self.fleet.clock.now)
        self.fleet.clock.after(seconds, self._written, self._life, effect)

    def _written(self, life: int, save: Save) -> None:
        if life != self._life:
            return
        if self.disk.finish(save):
            self.fleet.durable(self, save.state)
            self._happen(Saved(save.token))
        else:
            self._happen(SaveFailed(save.token, "no space is left on the disk"))

    def _plan(self, effect: Plan) -> None:
        found = self.planner.plan(effect.view, self.device)
        plan, refusal = (None, found) if isinstance(found, str) else (found, "")
        self._later(0.01 + 0.04 * self.fleet.random.random(), Planned(effect.view, plan, refusal))

    def _set_timer(self, effect: SetTimer) -> None:
        turn = self._timers.get(effect.name, 0) + 1
        self._timers[effect.name] = turn
        self.fleet.clock.after(effect.after_s, self._tick, self._life, effect.name, turn)

    def _tick(self, life: int, name: str, turn: int) -> None:
        if life == self._life and self._timers[name] == turn:
            self._happen(Tick(name))

    def _end(self, effect: End) -> None:
        self.end = effect
        survivors = self.disk.crash()  # what it did not wait for
        self._gone()
        for state in survivors:
            self.fleet.durable(self, state)
        self.fleet.ended(self, effect)
