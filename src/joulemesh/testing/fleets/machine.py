"""One virtual device: a real runner and its node, on a clock, a disk, a battery and a learner.

The machine is the runner's `Host`. What a real one might do to it, is done here: it loses its power
or only its time, its disk is full, its learner is slow, hangs or fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.host import Handle, Told, Works
from joulemesh.deploy.device.learner import Training
from joulemesh.deploy.device.runner import Runner, Tools
from joulemesh.deploy.effects import Durable, Effect, End, Event, Planned
from joulemesh.deploy.messages import Message
from joulemesh.deploy.node.ending import Served
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.view import View
from joulemesh.testing.fleets.audit import InvariantError
from joulemesh.testing.fleets.hardware import Battery, Ceiling, Disk, VirtualLearner
from joulemesh.testing.fleets.network import Clock, MemoryNetwork
from joulemesh.testing.fleets.setup import VirtualPlanner

_ANSWER_S = 1.0
_NEVER = 10**9  # iterations between evaluations
_PLANNING_S = (0.01, 0.05)


class NodeLike(Protocol):
    """A node's state machine."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]: ...


class Fleet(Protocol):
    """What a machine needs of the fleet around it."""

    clock: Clock
    network: MemoryNetwork
    random: Random

    def make_node(self, machine: Machine) -> NodeLike:
        """The node of a machine that is started, from the state on its disk."""

    def started(self, machine: Machine) -> None: ...

    def handled(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None: ...

    def durable(self, machine: Machine, state: Durable) -> None: ...

    def ended(self, machine: Machine, end: End) -> None: ...

    def failed(self, machine: Machine, error: BaseException) -> None: ...


class Machine:
    """Drives one node with the field's runner, and does to it what a real machine might."""

    def __init__(
        self,
        device: int,
        fleet: Fleet,
        disk: Disk,
        battery: Battery,
        planner: VirtualPlanner,
        *,
        learner: Any = None,
        double: bool = False,
    ) -> None:
        self.device, self.fleet, self.planner, self.double = device, fleet, planner, double
        self.disk, self.battery = disk, battery
        self.ceiling = Ceiling(battery.capacity_j)
        self.learner = learner or VirtualLearner(planner.setup, device, battery)
        self.runner: Runner | None = None
        self.end: End | None = None
        self.since = 0.0  # it has been there without a break
        self.epoch = 0  # of its process
        self._life = 0  # what was asked for in an earlier life concerns nobody
        self._frozen_at: float | None = None
        self._waiting: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._offset_s = 0.0
        self._training = _LearnerWorker(self)

    @property
    def up(self) -> bool:
        return self.runner is not None

    @property
    def at_work(self) -> int:
        """The iteration that its learner is at; 0 if it is at none."""
        return self.learner.iteration if self._training.busy else 0

    # What happens to it -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, from what the disk holds; its clock begins anywhere."""
        if self.up:
            return
        fleet = self.fleet
        self._life += 1
        self.since, self.end = fleet.clock.now, None
        self._offset_s = fleet.random.random() * 1000.0
        self.epoch = self._new_epoch()
        if not self.double:
            fleet.started(self)
        self.battery.begin(max(self.disk.state.commit.spent_j, self.ceiling.joules))
        self.learner.hangs = False
        self._training = _LearnerWorker(self)
        tools: Any = Tools(
            transport=_Unused(),  # type: ignore[arg-type]
            store=_Store(self),  # type: ignore[arg-type]
            training=Training(self.learner, _NEVER, clock=self.learner.time),
            planner=_Planner(self),
            meter=self.battery,
            ceiling=self.ceiling,  # type: ignore[arg-type]
            journal=_Journal(),  # type: ignore[arg-type]
        )
        self.runner = Runner(_Seen(self, fleet.make_node(self)), tools)
        commit = self.disk.state.commit
        self.runner.iteration, self.runner.elapsed_s = commit.iteration, commit.elapsed_s
        if not self.double:
            fleet.network.attach(self.device, self._take)
        begun = self._life
        self.runner.begin(self, lambda how: self._over(begun, how))

    def crash(self, *, power_cut: bool = False) -> None:
        if self.up:
            self._gone()
            self.disk.crash()
            self.ceiling.crash(power_cut=power_cut)

    def stop(self) -> None:
        if self.runner is not None:
            self._happen(self._life, self.runner.stop, "the system is going down")

    def freeze(self) -> None:
        if self.up and self._frozen_at is None:
            self._frozen_at = self.fleet.clock.now

    def thaw(self) -> None:
        """It gets time again; everything that came meanwhile comes at once."""
        if self._frozen_at is None:
            return
        slept_s, self._frozen_at = self.fleet.clock.now - self._frozen_at, None
        self.since = self.fleet.clock.now
        self._training.slept(slept_s)
        waiting, self._waiting = self._waiting, []
        life = self._life
        for call, arguments in waiting:
            self._happen(life, call, *arguments)

    def hang(self) -> None:
        """What the learner is at, or is asked for next, never ends."""
        self.learner.hangs = True
        self._training.hang()

    def serve(self) -> None:
        """The node has ended: its neighbours can still have what it ended with."""
        network = self.fleet.network
        self._life += 1
        served = Served(self.device, self.disk.state, self.battery, self._new_epoch())

        def take(sender: int, message: Message, taken: Callable[[], None]) -> None:
            taken()
            for answer in served.answer(sender, message):
                self.battery.use_to_send(sender, answer)
                network.send(self.device, sender, answer, _ANSWER_S, lambda reason: None)

        network.attach(self.device, take)

    def _new_epoch(self) -> int:
        return Random(f"epoch {self.device} {self._life} {self.double}").getrandbits(48)

    def _gone(self) -> None:
        self.runner = None
        self._life += 1
        self._frozen_at = None
        self._waiting.clear()
        if not self.double:
            self.fleet.network.detach(self.device)

    def _over(self, life: int, how: End | BaseException) -> None:
        if life != self._life:
            return
        if not isinstance(how, End):
            self.fleet.failed(self, how)
            return
        runner, self.end = self.runner, how
        assert runner is not None
        self._gone()
        self.fleet.clock.after(0.0, self._close, runner, how)

    def _close(self, runner: Runner, end: End) -> None:
        self.disk.finish_all()
        runner.write_last()
        self.fleet.ended(self, end)

    def answer(self, view: View) -> Planned:
        """The plan of a view, or why there is none."""
        found = self.planner.plan(view, self.device)
        plan, refusal = (None, found) if isinstance(found, str) else (found, "")
        return Planned(view, plan, refusal)

    # The runner's host --------------------------------------------------------------------------

    def _happen(self, life: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Call the process, unless it is another one by now; if it has no time, later."""
        if life != self._life or not self.up:
            return
        if self._frozen_at is not None:
            self._waiting.append((call, arguments))
            return
        try:
            call(*arguments)
        except AssertionError:  # of the simulation: an invariant
            raise
        except Exception as error:  # as an event loop would
            self.lost(error)

    def lost(self, error: Exception) -> None:
        """Something that the process's loop has called, has failed: that ends the node."""
        life = self._life
        if self.runner is not None:
            self.runner.fail(error)
        if life == self._life:
            raise InvariantError("whatever fails ends the node", repr(error))

    def time(self) -> float:
        return self.fleet.clock.now + self._offset_s

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle:
        call = _Call(callback)
        wait_s = max(0.0, when - self.time())
        self.fleet.clock.after(wait_s, self._happen, self._life, call, *arguments)
        return call

    def worker(self, name: str) -> Works:
        if name == "learner":
            return self._training
        return _DiskWorker(self) if name == "store" else _PlannerWorker(self)

    def send(self, to: int, message: Message, within_s: float, told: Told) -> None:
        life = self._life
        self.battery.use_to_send(to, message)

        def answered(reason: str) -> None:
            error = TransportError(Reason.LATE, reason) if reason else None
            self._happen(life, told, error)

        self.fleet.network.send(self.device, to, message, within_s, answered)

    def rest(self) -> None:
        """Do nothing: the memory is this process's own."""

    def _take(self, sender: int, message: Message, taken: Callable[[], None]) -> None:
        self._happen(self._life, self._receive, sender, message, taken)

    def _receive(self, sender: int, message: Message, taken: Callable[[], None]) -> None:
        assert self.runner is not None
        taken()
        self.runner.received(sender, message)


class _Seen:
    """A node whose every event the fleet sees."""

    def __init__(self, machine: Machine, node: NodeLike) -> None:
        self._machine, self._node = machine, node

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = list(self._node.handle(event, now))
        self._machine.fleet.handled(self._machine, event, effects)
        return effects


class _Call:
    """A callback that can be cancelled."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        self._callback: Callable[..., Any] | None = callback

    def __call__(self, *arguments: Any) -> None:
        if self._callback is not None:
            self._callback(*arguments)

    def cancel(self) -> None:
        self._callback = None


Then = Callable[[Any, BaseException | None], None]


class _DiskWorker:
    """Writes one thing after the other."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._life, self.busy = machine, machine._life, False

    def do(self, action: Callable[[], Any], then: Then) -> None:
        machine = self._machine
        seconds = machine.disk.write(action, machine.fleet.clock.now)
        machine.fleet.clock.after(seconds, self._written, action, then)

    def _written(self, action: Callable[[], Any], then: Then) -> None:
        if self._life == self._machine._life:
            self._machine._happen(self._life, then, *self._machine.disk.finish(action))

    def close(self) -> None: ...


class _PlannerWorker:
    """Makes a plan in a moment."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._life, self.busy = machine, machine._life, False

    def do(self, action: Callable[[], Any], then: Then) -> None:
        fleet = self._machine.fleet
        low, high = _PLANNING_S
        wait_s = low + (high - low) * fleet.random.random()
        value, error = _tried(action)
        fleet.clock.after(wait_s, self._machine._happen, self._life, then, value, error)

    def close(self) -> None: ...


class _LearnerWorker:
    """Trains in virtual time, one thing after the other; a frozen process does not train."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._life = machine, machine._life
        self._queue: list[tuple[Callable[[], Any], Then]] = []
        self._due = math.inf
        self.busy = False

    def do(self, action: Callable[[], Any], then: Then) -> None:
        self._queue.append((action, then))
        self._next()

    def _next(self) -> None:
        if self.busy or not self._queue:
            return
        action, then = self._queue.pop(0)
        machine, clock = self._machine, self._machine.fleet.clock
        self.busy, before = True, machine.learner.time()
        value, error = _tried(action)
        took_s = machine.learner.time() - before
        self._due = math.inf if machine.learner.hangs else clock.now + took_s
        if not machine.learner.hangs:
            clock.after(took_s, self._done, value, error, then)

    def _done(self, value: Any, error: BaseException | None, then: Then) -> None:
        machine, clock = self._machine, self._machine.fleet.clock
        if self._life != machine._life or self._due == math.inf:
            return
        if machine._frozen_at is not None or self._due > clock.now:
            self._again = (value, error, then)
            if machine._frozen_at is None:
                clock.after(self._due - clock.now, self._done, value, error, then)
            return
        self.busy = False
        machine._happen(self._life, then, value, error)
        self._next()

    def slept(self, seconds: float) -> None:
        """The process was frozen for so long, and its training with it."""
        if self.busy and math.isfinite(self._due):
            clock, overdue = self._machine.fleet.clock, self._due <= self._machine.fleet.clock.now
            self._due += seconds
            if overdue:
                clock.after(self._due - clock.now, self._done, *self._again)

    def hang(self) -> None:
        if self.busy:
            self._due = math.inf

    def close(self) -> None: ...


def _tried(action: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return action(), None
    except AssertionError:
        raise
    except Exception as error:
        return None, error


class _Store:
    """A store on the machine's disk."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def save(self, state: Durable) -> None:
        machine = self._machine
        if machine.disk.full:
            raise ScenarioError("no space is left on the disk")
        machine.disk.state = state
        machine.fleet.durable(machine, state)


class _Planner:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def answer(self, view: View) -> Planned:
        return self._machine.answer(view)


class _Journal:
    def write(self, kind: str, figures: dict[str, Any]) -> None:
        """Nobody reads it: the fleet sees everything as it happens."""

    def flush(self) -> None: ...


class _Unused:
    """The machine itself carries messages."""
