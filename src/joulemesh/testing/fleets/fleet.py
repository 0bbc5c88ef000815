"""A fleet in its world: machines, network, faults and time, from one seed to its end."""

from __future__ import annotations

import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from joulemesh.deploy.effects import Commit, Durable, Effect, End, Event, Send, Trained
from joulemesh.deploy.messages import Flood, Message
from joulemesh.deploy.node.council import UNREACHED
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.view import Settings, View
from joulemesh.testing.fleets.audit import Audit, InvariantError, check_history, majority_of
from joulemesh.testing.fleets.cases import Case, Fault
from joulemesh.testing.fleets.hardware import Battery, Disk, VirtualSigner
from joulemesh.testing.fleets.machine import Machine, NodeLike
from joulemesh.testing.fleets.network import Clock, MemoryNetwork
from joulemesh.testing.fleets.setup import Links, VirtualPlanner

MakeNode = Callable[[Machine, Case], NodeLike]
Watch = Callable[[float, int, Event, Sequence[Effect]], None]

_DISK_S = (0.001, 0.02)
# Patiences after the last fault, within which a run must have ended. Whoever lacks parameters that
# nobody can pay for giving waits through four views, of four patiences each and what agreement
# takes; then those may come to lack them whom it would have given to, and all again after a stop.
_WAITS = 90.0
_CUTS = ("partition", "cut off", "overhears")
_OVERHEARS = 0.25  # patiences
_STOPS = 3  # for want of a plan or of parameters, or for a slow learner: then it is the user's turn
_VIEWS = 80  # more than any run that makes headway
_EVENTS = 60_000  # more than any run that ends


@dataclass(frozen=True)
class Outcome:
    """How a seed went."""

    seed: int  # the seed
    broken: str  # the invariant that did not hold and what showed it; empty if all did
    events: int  # number of events that nodes handled
    views: int  # number of views installed after the first
    seconds: float  # virtual seconds
    complete: tuple[int, ...]  # devices that carried out the plan to its end
    digest: int  # of the course of events


class VirtualFleet:
    """Runs one case."""

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
        self.planner = VirtualPlanner(case.setup, case.battery_j)
        first = self.planner.first(case.battery_j)
        self._begin = begin = Durable(0, (first,), Commit(0, np.zeros(case.setup.size)))
        self._copies: dict[Fault, tuple[Durable, float]] = {}
        devices = range(case.setup.devices)
        self.audit = Audit(self.planner, first, [begin for _ in devices])
        self.machines = [
            Machine(
                device,
                self,
                Disk(begin, self.random, _DISK_S),
                Battery(case.setup, device, case.battery_j[device]),
                VirtualPlanner(case.setup, case.battery_j, odd=device == case.odd),
            )
            for device in devices
        ]
        self.events, self.digest = 0, 0
        self.complete: set[int] = set()
        self._gone: set[int] = set()  # ended for good, before the end of the plan
        self._stops: Counter[int] = Counter()  # for want of a plan
        self._first_end: float | None = None
        self._well = self._news = False
        self._cuts: Counter[tuple[int, int]] = Counter()
        self._said: Counter[str] = Counter()

    # What machines need -------------------------------------------------------------------------

    def make_node(self, machine: Machine) -> NodeLike:
        return self._make(machine, self.case)

    def started(self, machine: Machine) -> None:
        self.audit.starts(machine.device, machine.epoch)

    def handled(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """A node has handled an event: what it says must be true."""
        now, device = self.clock.now, machine.device
        if machine.double:
            self.audit.keeps_still(device, effects)
            return
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
                self._spring(device, effect.message)
                self.audit.credits(device, effect.message, machine.at_work)
                self.audit.says(device, effect.to, effect.message)

    def durable(self, machine: Machine, state: Durable) -> None:
        if not machine.double:
            self.audit.durable(machine.device, state)

    def ended(self, machine: Machine, end: End) -> None:
        """A node has ended: its supervisor starts it again if that can help."""
        if machine.double:
            self.clock.after(self.case.patience_s, machine.start)
            return
        self._news = True
        if end.reason.startswith("there is no plan"):
            self._stops[machine.device] += 1
            self.audit.stopped(machine.device, end)
        unreached = end.reason == UNREACHED and self._well and not self._somebody_gives()
        if (
            unreached or "failed (training iteration" in end.reason
        ):  # and whatever fails is to stop the fleet
            self._stops[machine.device] += 1
        if not end.reason:
            raise InvariantError("whoever ends says why", f"device {machine.device} does not")
        if end.complete:
            self.complete.add(machine.device)
            self.audit.done(machine.device)
            machine.serve()
            if self._first_end is None:
                self._first_end = self.clock.now
        elif not end.resumable or self._stops[machine.device] >= _STOPS:
            self._gone.add(machine.device)
        else:
            wait_s = (0.5 + self.random.random()) * self.case.patience_s
            self.clock.after(wait_s, self._start, machine)

    def _somebody_gives(self) -> bool:
        """Is there a member that holds the fleet's parameters, and can pay for giving them?"""
        view, size = self.audit.newest(), 8 * self.case.setup.size
        newcomers = {newcomer for newcomer, _ in view.gifts}
        for machine in (self.machines[one] for one in view.members):
            lost = machine.device in self._gone | self.case.dead and not machine.up
            commit, battery = machine.disk.state.commit, machine.battery
            if lost or (machine.device in newcomers and commit.view < view.number):
                continue
            near = self.case.setup.neighbours(machine.device)
            if any(battery.send_j(to, size) <= battery.left_j() for to in near):
                return True
        return False

    def failed(self, machine: Machine, error: BaseException) -> None:
        if isinstance(error, InvariantError):
            raise error
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InvariantError(
            "no node fails",
            f"device {machine.device}: {type(error).__name__}: {error} "
            f"({Path(where.filename).name}:{where.lineno})",
        ) from error

    def _start(self, machine: Machine) -> None:
        if machine.device not in self.case.dead | self.complete:
            machine.start()

    # Faults -------------------------------------------------------------------------------------

    def _begin_fault(self, fault: Fault) -> None:
        machine = self.machines[fault.device]
        if fault.kind == "crash":
            machine.crash()
        elif fault.kind == "power cut":
            for one in self.machines:  # they come back one by one
                one.crash(power_cut=True)
                self.clock.after(fault.for_s * self.random.random(), self._start, one)
        elif fault.kind == "freeze":
            machine.freeze()
        elif fault.kind in _CUTS:
            self._cuts.update(self._links_of(fault))
            self.network.cut(+self._cuts)
        elif fault.kind == "full disk":
            machine.disk.full = True
        elif fault.kind == "slow":
            machine.learner.slow = 20.0
        elif fault.kind == "slower":
            machine.learner.slow = fault.factor
        elif fault.kind == "hang":
            machine.hang()
        elif fault.kind == "raise":
            machine.learner.raises = True
        elif fault.kind == "restore":
            self._copies[fault] = (_copied(machine.disk.state), machine.battery.spent_j())
        elif fault.kind == "wipe":
            self._lose(machine, self._begin, 0.0)
        elif fault.kind == "clone":
            self._clone_of(machine).start()
        else:
            machine.stop()

    def _links_of(self, fault: Fault) -> list[tuple[int, int]]:
        if fault.kind == "overhears":
            both = [pair for a, b in self.case.setup.links for pair in ((a, b), (b, a))]
            return [pair for pair in both if pair[1] != fault.device]
        near = self.case.setup.neighbours(fault.device) if fault.kind == "cut off" else ()
        both = [pair for one in near for pair in ((fault.device, one), (one, fault.device))]
        return [*fault.links, *both]

    def _end_fault(self, fault: Fault) -> None:
        machine = self.machines[fault.device]
        if fault.kind == "crash":
            self._start(machine)
        elif fault.kind == "freeze":
            machine.thaw()
        elif fault.kind in _CUTS:
            self._cuts.subtract(self._links_of(fault))
            self.network.cut(+self._cuts)
        elif fault.kind == "full disk":
            machine.disk.full = False
        elif fault.kind == "slow":
            machine.learner.slow = 1.0
        elif fault.kind == "raise":
            machine.learner.raises = False
        elif fault.kind == "restore":
            self._lose(machine, *self._copies[fault])

    def _lose(self, machine: Machine, state: Durable, spent_j: float) -> None:
        """A device's folder is lost, or is as it was once; so is what its meter has counted."""
        if machine.device in self.complete | self._gone:
            return
        was_up = machine.up
        machine.crash()
        machine.disk.state = state
        machine.battery.forget(spent_j, max(spent_j, self._told_j(machine)))
        machine.ceiling.settle(spent_j)
        self.audit.lost(machine.device, state)
        if was_up:
            self._start(machine)

    def _told_j(self, machine: Machine) -> float:
        """What every neighbour has on disk of what a device has spent."""
        near = [self.machines[one] for one in self.case.setup.neighbours(machine.device)]
        known = (
            {one.device: one.spent_j for one in other.disk.state.accounts}.get(machine.device, 0.0)
            for other in near
        )
        return min(known, default=0.0)

    def _clone_of(self, machine: Machine) -> Machine:
        """A second machine with a device's name, key and folder, at another address."""
        setup, device = self.case.setup, machine.device
        disk = Disk(_copied(machine.disk.state), self.random, _DISK_S)
        battery = Battery(setup, device, machine.battery.capacity_j)
        battery.forget(machine.battery.spent_j(), 0.0)
        return Machine(
            device, self, disk, battery, VirtualPlanner(setup, self.case.battery_j), double=True
        )

    def _spring(self, device: int, message: Message) -> None:
        if self._well or not self.case.ambushes:
            return
        flood = message if isinstance(message, Flood) else None
        if flood is not None and flood.origin != device:
            return
        name = type(message if flood is None else flood.body).__name__
        self._said[name] += 1
        for one in self.case.ambushes:
            if (one.message, one.turn + 1) == (name, self._said[name]):
                for_s = max(min(one.for_s, self.case.well_s - self.clock.now - one.after_s), 0.0)
                at_s = self.clock.now + one.after_s
                if one.kind == "overhears":  # what it has heard, it cannot tell
                    heard_s = min(for_s, _OVERHEARS * self.case.patience_s)
                    self._plan_fault(Fault(one.kind, at_s, heard_s, device))
                    self._plan_fault(Fault("cut off", at_s + heard_s, for_s - heard_s, device))
                else:
                    self._plan_fault(Fault(one.kind, at_s, for_s, device))

    def _plan_fault(self, fault: Fault) -> None:
        wait_s = fault.at_s - self.clock.now
        self.clock.after(wait_s, self._begin_fault, fault)
        self.clock.after(wait_s + fault.for_s, self._end_fault, fault)

    def _all_well(self) -> None:
        self._well = self._news = True
        self.network.weather = self.case.weather.calm()

    # The run ------------------------------------------------------------------------------------

    def run(self) -> None:
        case, clock = self.case, self.clock
        for machine in self.machines:
            clock.after(self.random.random() * 0.2 * case.patience_s, machine.start)
        for fault in case.faults:
            self._plan_fault(fault)
        clock.after(case.well_s, self._all_well)
        until = case.well_s + _WAITS * case.patience_s
        while clock.step(until) and not self._over():
            if self.events > _EVENTS:
                if case.odd >= 0:
                    break  # without the one that plans otherwise there may be no majority
                raise InvariantError("the run ends", f"it has not after {self.events} events")
            if len(self.audit.views) > _VIEWS:
                raise InvariantError("views are few", f"there are {len(self.audit.views)}")
        for machine in self.machines:
            self.audit.metered(machine.device, machine.battery)
        check_history(self.audit)
        if case.odd < 0:
            self._has_ended()

    def _unfinished(self) -> set[int]:
        """Devices that can still be expected to reach the end."""
        dead = {one for one in self.case.dead if not self.machines[one].up}
        return set(range(self.case.setup.devices)) - self.complete - self._gone - dead

    def _over(self) -> bool:
        if not self._well or not self._news:
            return False
        self._news = False
        return len(self._owed()) == 0

    def _owed(self) -> list[int]:
        """Those to whom the end is promised.

        They are the members of the newest view as far as a majority of them is connected, and those
        that were there all the time, since before anybody had ended.
        """
        newest, left = self.audit.newest(), self._unfinished()
        for part in _parts(left, self.case.setup.links):
            members = sorted(part.intersection(newest.members))
            voters = set(members) - self.audit.forgetful(newest)
            if len(voters) >= majority_of(newest) and self._can_learn_of(newest, part):
                return members
        if self._first_end is None:
            return []
        since = {one: max(self.machines[one].since, self.case.well_s) for one in left}
        return [one for one in newest.members if one in left and since[one] <= self._first_end]

    def _can_learn_of(self, view: View, part: set[int]) -> bool:
        """Does some device of a part know of a view, or can they find out that it was decided?

        Whoever knew of it may be gone for good. The others then ask a majority of the view before;
        without one they stop and say so, as consensus must.
        """
        if any(self.audit.known(one).number >= view.number for one in part):
            return True
        before = self.audit.views[view.number - 1]
        voters = part.intersection(before.members) - self.audit.forgetful(before)
        return len(voters) >= majority_of(before)

    def _has_ended(self) -> None:
        owed = self._owed()
        if owed:
            where = {one: self.audit.committed(one).iteration for one in owed}
            raise InvariantError(
                "once all is well, the run ends",
                f"{self.clock.now - self.case.well_s:.1f} s later, devices have committed {where} "
                f"of {self.case.setup.iterations} iterations in {self.audit.newest()}",
            )


def _copied(state: Durable) -> Durable:
    """What a device finds in a copy of its folder: see `Store.load`."""
    return replace(state, folder="copied") if state.folder == "whole" else state


def _parts(devices: set[int], links: Links) -> list[set[int]]:
    parts: list[set[int]] = []
    for device in sorted(devices):
        near = {a + b - device for a, b in links if device in (a, b)} & devices
        touched = [part for part in parts if part & near]
        joined = {device}.union(*touched)
        parts = [part for part in parts if part not in touched] + [joined]
    return parts


def make_node(machine: Machine, case: Case) -> Node:
    patience_s = case.patience_s
    settings = Settings(
        patience_s=patience_s,
        on_failure=case.on_failure,
        starting_s=4.0 * patience_s,
        hang_s=patience_s,
        minority_s=8.0 * patience_s,
    )
    return Node(
        machine.device,
        case.setup.links,
        machine.disk.state,
        machine.battery,
        settings,
        VirtualSigner(machine.device),
        machine.epoch,
        case.setup.spares,
    )


def simulate(case: Case, make: MakeNode = make_node, watch: Watch | None = None) -> Outcome:
    """Run a case to its end, or until an invariant breaks."""
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
