"""A fleet in its world: machines, network, faults and time, from one seed to its end."""

from __future__ import annotations

__all__ = ["Outcome", "VirtualFleet", "make_node", "simulate"]

import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from joulemesh.deploy.effects import Commit, Durable, Effect, End, Event, Send, Trained
from joulemesh.deploy.node import Node
from joulemesh.deploy.settings import Settings
from joulemesh.deploy.transport.memory import Clock, MemoryNetwork
from joulemesh.deploy.virtual.audit import Audit, InvariantError, majority_of
from joulemesh.deploy.virtual.cases import Case, Fault
from joulemesh.deploy.virtual.hardware import Battery, Disk
from joulemesh.deploy.virtual.machine import Machine, NodeLike
from joulemesh.deploy.virtual.oracle import check_history
from joulemesh.deploy.virtual.setup import VirtualPlanner

MakeNode = Callable[[Machine, Case], NodeLike]
Watch = Callable[[float, int, Event, Sequence[Effect]], None]

_DISK_S = (0.001, 0.02)
_WAITS = 60.0  # patiences after the last fault, within which a run must have ended
_EVENTS = 60_000  # more than any run that ends


@dataclass(frozen=True)
class Outcome:
    """How a seed went.

    Attributes:
        seed: the seed.
        broken: the invariant that did not hold and what showed it; empty if all did.
        events: number of events that nodes handled.
        views: number of views installed after the first.
        seconds: virtual seconds.
        complete: devices that carried out the plan to its end.
        digest: of the course of events.
    """

    seed: int
    broken: str
    events: int
    views: int
    seconds: float
    complete: tuple[int, ...]
    digest: int


class VirtualFleet:
    """Runs one case.

    Args:
        case: what happens.
        make: makes the node of a machine that is started.
        watch: told each event that a node handles: (now, device, event, effects).
    """

    def __init__(
        self,
        case: Case,
        make: MakeNode,
        watch: Watch | None = None,
    ) -> None:
        self.case, self._make, self._watch = case, make, watch
        self.random = Random(f"run {case.seed}")
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock, self.random, case.weather)
        self.planner = VirtualPlanner(case.setup)
        first = self.planner.first(case.battery_j)
        begin = Durable(0, (first,), Commit(0, np.zeros(case.setup.size)))
        devices = range(case.setup.devices)
        self.audit = Audit(self.planner, first, [begin for _ in devices])
        self.machines = [
            Machine(
                device,
                self,
                Disk(begin, self.random, _DISK_S),
                Battery(case.setup, device, case.battery_j[device]),
                VirtualPlanner(case.setup, odd=device == case.odd),
            )
            for device in devices
        ]
        self.events, self.digest = 0, 0
        self.complete: set[int] = set()
        self._gone: set[int] = set()  # ended for good, before the end of the plan
        self._first_end: float | None = None
        self._well = self._news = False
        self._cuts: Counter[tuple[int, int]] = Counter()

    # What machines need -------------------------------------------------------------------------

    def make_node(self, machine: Machine) -> NodeLike:
        """The node of a machine that is started."""
        return self._make(machine, self.case)

    def handled(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """A node has handled an event: what it says must be true."""
        now, device = self.clock.now, machine.device
        self.events += 1
        course = f"{now:.9f} {device} {type(event).__name__} {len(effects)}"
        self.digest = zlib.crc32(course.encode(), self.digest)
        if self._watch is not None:
            self._watch(now, device, event, effects)
        self.audit.paid(device, machine.battery)
        if isinstance(event, Trained):
            self.audit.trained[device, event.iteration] = event
        for effect in effects:
            if isinstance(effect, Send):
                self.audit.says(device, effect.to, effect.message)

    def durable(self, machine: Machine, state: Durable) -> None:
        """A state has reached a disk."""
        self.audit.durable(machine.device, state)

    def ended(self, machine: Machine, end: End) -> None:
        """A node has ended: its supervisor starts it again if that can help."""
        self._news = True
        if end.complete:
            self.complete.add(machine.device)
            if self._first_end is None:
                self._first_end = self.clock.now
        elif not end.resumable:
            self._gone.add(machine.device)
        else:
            wait_s = (0.5 + self.random.random()) * self.case.patience_s
            self.clock.after(wait_s, self._start, machine)

    def _start(self, machine: Machine) -> None:
        if not (self._well and machine.device in self.case.dead):
            machine.start()

    # Faults -------------------------------------------------------------------------------------

    def _begin_fault(self, fault: Fault) -> None:
        machine = self.machines[fault.device]
        if fault.kind == "crash":
            machine.crash()
        elif fault.kind == "power cut":
            for one in self.machines:
                one.crash()
        elif fault.kind == "freeze":
            machine.freeze()
        elif fault.kind == "partition":
            self._cuts.update(fault.links)
            self.network.cut(+self._cuts)
        elif fault.kind == "full disk":
            machine.disk.full = True
        elif fault.kind == "slow":
            machine.slow = 20.0
        else:
            machine.stop()

    def _end_fault(self, fault: Fault) -> None:
        machine = self.machines[fault.device]
        if fault.kind == "crash":
            if fault.device not in self.case.dead:
                self._start(machine)
        elif fault.kind == "power cut":
            for one in self.machines:
                if one.device not in self.complete:
                    self._start(one)
        elif fault.kind == "freeze":
            machine.thaw()
        elif fault.kind == "partition":
            self._cuts.subtract(fault.links)
            self.network.cut(+self._cuts)
        elif fault.kind == "full disk":
            machine.disk.full = False
        elif fault.kind == "slow":
            machine.slow = 1.0

    def _all_well(self) -> None:
        self._well = self._news = True
        self.network.weather = self.case.weather.calm()

    # The run ------------------------------------------------------------------------------------

    def run(self) -> None:
        """From the start to the end.

        Raises:
            InvariantError: an invariant does not hold.
        """
        case, clock = self.case, self.clock
        for machine in self.machines:
            clock.after(self.random.random() * 0.2 * case.patience_s, machine.start)
        for fault in case.faults:
            clock.after(fault.at_s, self._begin_fault, fault)
            clock.after(fault.at_s + fault.for_s, self._end_fault, fault)
        clock.after(case.well_s, self._all_well)
        until = case.well_s + _WAITS * case.patience_s
        while clock.step(until) and not self._over():
            if self.events > _EVENTS:
                raise InvariantError("the run ends", f"it has not after {self.events} events")
        for machine in self.machines:
            self.audit.metered(machine.device, machine.battery)
        check_history(self.audit)
        if case.odd < 0:
            self._has_ended()

    def _unfinished(self) -> list[Machine]:
        """Members of the newest view that can still be expected to reach the end."""
        members = self.audit.newest().members
        return [
            machine
            for machine in self.machines
            if machine.device in members
            and machine.device not in self.complete
            and machine.device not in self._gone
            and not (machine.device in self.case.dead and not machine.up)
        ]

    def _over(self) -> bool:
        if not self._well or not self._news:
            return False
        self._news = False
        return len(self._owed()) == 0

    def _owed(self) -> list[Machine]:
        """Those to whom the end is promised: a majority, or those who were there all the time."""
        left = self._unfinished()
        if len(left) >= majority_of(self.audit.newest()):
            return left
        first = self._first_end if self._first_end is not None else float("inf")
        return [machine for machine in left if max(machine.since, self.case.well_s) <= first]

    def _has_ended(self) -> None:
        owed = self._owed()
        if owed:
            where = {one.device: self.audit.committed(one.device).iteration for one in owed}
            raise InvariantError(
                "once all is well, the run ends",
                f"{self.clock.now - self.case.well_s:.1f} s later, devices have committed {where} "
                f"of {self.case.setup.iterations} iterations in {self.audit.newest()}",
            )


def make_node(machine: Machine, case: Case) -> Node:
    """The node of a machine that is started."""
    patience_s = case.patience_s
    settings = Settings(
        patience_s=patience_s,
        on_failure=case.on_failure,
        starting_s=4.0 * patience_s,
        hang_s=patience_s,
        minority_s=8.0 * patience_s,
    )
    return Node(machine.device, case.setup.links, machine.disk.state, machine.battery, settings)


def simulate(case: Case, make: MakeNode = make_node, watch: Watch | None = None) -> Outcome:
    """Run a case to its end, or until an invariant breaks.

    Args:
        case: what happens.
        make: makes the node of a machine that is started.
        watch: told each event that a node handles.

    Returns:
        How it went.
    """
    world, broken = VirtualFleet(case, make, watch), ""
    try:
        world.run()
    except InvariantError as found:
        broken = str(found)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        broken = (
            f"no node fails: {type(error).__name__}: {error} "
            f"({Path(where.filename).name}:{where.lineno})"
        )
    return Outcome(
        case.seed,
        broken,
        world.events,
        len(world.audit.views) - 1,
        world.clock.now,
        tuple(sorted(world.complete)),
        world.digest,
    )
