"""The nodes of a scenario's own plan, in memory and under a virtual clock, with a crash or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import joulemesh
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.device.meter import Modelled, Tariff
from joulemesh.deploy.effects import Commit, Durable, Effect, End, Event, Learner, Planned, Train
from joulemesh.deploy.messages import Message
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.record.replay import Course, Done, course_of
from joulemesh.deploy.view import Settings, View
from joulemesh.planning.ground import Ground
from joulemesh.testing.fleets.hardware import Disk, VirtualSigner
from joulemesh.testing.fleets.machine import Machine
from joulemesh.testing.fleets.network import Clock, MemoryNetwork, Weather

TRAINING_S = 1.0  # virtual seconds of an iteration's rounds
SETTINGS = Settings(patience_s=1.0, starting_s=5.0, hang_s=5.0, minority_s=20.0)
_UNTIL_S = 400.0


Crashes = dict[int, tuple[int, float, float | None]]


class Meter(Modelled):
    """Counts what the node says that it does."""

    @property
    def capacity_j(self) -> float:
        """What the battery holds."""
        return self.battery_j

    def begin(self, spent_j: float) -> None:
        """The process is started again: what was spent is known."""

    def use_to_send(self, to: int, message: Message) -> None:
        """Nothing more to count."""


class Timed:
    """A learner of the test, which takes virtual time."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.hangs, self.iteration, self._time = learner, False, 0, 0.0
        self.parameters, self.load, self.save = learner.parameters, learner.load, learner.save

    def time(self) -> float:
        return self._time

    def train(self, iteration: int, rounds: int) -> None:
        self.learner.train(iteration, rounds)
        self._time += TRAINING_S

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        if memory:
            self.learner.restore(memory)

    def evaluate(self) -> dict[str, float]:
        return {}


class PlannedMachine(Machine):
    """A machine with the scenario's planner and a learner of the test."""

    def __init__(self, device: int, fleet: SchemeFleet, disk: Disk, learner: Learner) -> None:
        ground = fleet.ground
        item = int(np.asarray(learner.parameters()).dtype.itemsize)
        battery_j = float(ground.world.devices.energy_budget_j[device])
        meter: Any = Meter(battery_j, Tariff.of(ground, device, item))
        self.replanner = Replanner(ground, device)
        self.replanner.wire = fleet.wire
        unused: Any = None
        super().__init__(device, fleet, disk, meter, unused, learner=Timed(learner))

    def answer(self, view: View) -> Planned:
        return self.replanner.answer(view)


class SchemeFleet:
    """Runs a scenario's plan to its end.

    Args:
        scenario: what is asked.
        learners: makes the learner of a device; all begin alike.
        crashes: device -> (the iteration after whose commit it crashes, how long after it, and
            how long until it is started again, in seconds; None for never).
        seed: of delays, and of what a crash leaves on a disk.
        weather: how the network treats messages.
        wire: the type in which numbers travel, if it has fewer digits.
    """

    def __init__(
        self,
        scenario: joulemesh.Scenario,
        learners: Callable[[int], Learner],
        crashes: Crashes | None = None,
        seed: int = 0,
        weather: Weather | None = None,
        wire: np.dtype[Any] | None = None,
    ) -> None:
        count = scenario.devices.count
        self.random, self.clock, self.wire = Random(seed), Clock(), wire
        self.network = MemoryNetwork(self.clock, self.random, weather or Weather())
        made = [learners(device) for device in range(count)]
        self.ground = Ground.of(scenario, len(made[0].parameters()))
        view = Replanner(self.ground, 0).plan(first_view(count)).view
        vector = np.array(made[0].parameters())
        owed = None if self.ground.width is None else np.zeros_like(vector)
        begin = Durable(0, (view,), Commit(0, vector, dict(made[0].save()), owed=owed))
        self.links = tuple((int(i), int(j)) for i, j in self.ground.world.graph.edges)
        self.machines = [
            PlannedMachine(device, self, Disk(begin, self.random, (0.001, 0.01)), learner)
            for device, learner in enumerate(made)
        ]
        self._crashes = dict(crashes or {})
        self.ends: dict[int, End] = {}
        self.views: dict[int, View] = {0: view}
        self.commits: dict[tuple[int, int], Commit] = {}  # (iteration, device)
        self.trained: dict[tuple[int, int], int] = {}  # rounds

    # What machines need -------------------------------------------------------------------------

    def make_node(self, machine: Machine) -> Node:
        state = machine.disk.state
        device, battery = machine.device, machine.battery
        signer = VirtualSigner(device)
        return Node(device, self.links, state, battery, SETTINGS, signer, machine.epoch)

    def started(self, machine: Machine) -> None:
        """Nothing to note."""

    def handled(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Train):
                self.trained[effect.iteration, machine.device] = effect.rounds

    def durable(self, machine: Machine, state: Durable) -> None:
        device, commit = machine.device, state.commit
        for view in state.views:
            assert self.views.setdefault(view.number, view) == view
        before = self.commits.setdefault((commit.iteration, device), commit)
        assert before.view != commit.view or np.array_equal(before.vector, commit.vector)
        when, after_s, again_s = self._crashes.get(device, (-1, 0.0, None))
        if commit.iteration == when:
            del self._crashes[device]
            self.clock.after(after_s, machine.crash)
            if again_s is not None:
                self.clock.after(after_s + again_s, machine.start)

    def failed(self, machine: Machine, error: BaseException) -> None:
        raise AssertionError(f"device {machine.device} fails") from error

    def ended(self, machine: Machine, end: End) -> None:
        self.ends[machine.device] = end

    # The run ------------------------------------------------------------------------------------

    def run(self) -> None:
        """From the start until nobody is left."""
        for machine in self.machines:
            self.clock.after(0.1 * self.random.random(), machine.start)
        while self.clock.step(_UNTIL_S) and any(machine.up for machine in self.machines):
            pass
        while self.clock.step(self.clock.now):  # whoever has just ended says so
            pass

    @property
    def course(self) -> Course:
        """What happened, to be played again."""
        done = {
            (t, device): Done(commit.view, self.trained.get((t, device), 0), commit.absent)
            for (t, device), commit in self.commits.items()
            if t
        }
        return course_of(tuple(self.views.values()), done)

    def given(self) -> set[tuple[int, int]]:
        """(iteration, device): what newcomers took from others instead of computing it.

        A gift is of the iteration before its view begins; whoever computed that iteration did so
        by the plan of an older view.
        """
        return {
            (iteration, device)
            for (iteration, device), commit in self.commits.items()
            if self.views[commit.view].start > iteration
        } - {(0, device) for device in range(len(self.machines))}


def apart(fleet: SchemeFleet, vectors: dict[int, NDArray[Any]]) -> float:
    """The largest distance of what devices committed from what a replay gives, by iteration."""
    course, given = fleet.course, fleet.given()
    return max(
        float(np.abs(commit.vector - vectors[iteration][device]).max())
        for (iteration, device), commit in fleet.commits.items()
        if iteration
        and (iteration, device) not in given
        and device in course.view(iteration).members
    )
