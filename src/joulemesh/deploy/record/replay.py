"""What a deployment should have computed: its views and absences, played again in one process.

Every device's learner trains as its device did, and every message is carried from its sender to its
receiver: no network, no time, no recovery. With no fault it is the simulated run.
"""

from __future__ import annotations

__all__ = ["Course", "Plans", "Played", "plans_of", "replay"]

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.device.continuation import DevicePlan, Replanner
from joulemesh.deploy.plans import Learner, ViewPlan
from joulemesh.deploy.record.course import Course
from joulemesh.deploy.view import View
from joulemesh.planning.ground import Ground

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Memory = Mapping[str, NDArray[Any]]

Plans: TypeAlias = Callable[[View, int], ViewPlan]
"""(view, device) -> the plan of the view for the device."""


@dataclass(frozen=True, eq=False)
class Played:
    """One iteration.

    Attributes:
        iteration: its number, from 1.
        view: the number of the view whose plan it follows.
        vectors: [N, P]: every device's parameters after it.
        rounds: int64 [N]: local rounds.
        train_j: float64 [N]: joules of these.
        exchange_j: float64 [N]: joules of the exchange, as planned.
        seconds: of the slowest training and the exchange, as planned.
    """

    iteration: int
    view: int
    vectors: Vector
    rounds: IntArray
    train_j: FloatArray
    exchange_j: FloatArray
    seconds: float


def plans_of(ground: Ground, wire: np.dtype[Any] | None = None) -> Plans:
    """The plans of a scenario's views; each is made once for all devices.

    Args:
        ground: the scenario, made ready.
        wire: the type in which numbers travelled, if it has fewer digits than they are computed
            with.
    """
    replanner, made = Replanner(ground, 0), dict[View, DevicePlan]()
    replanner.wire = wire

    def plan(view: View, device: int) -> DevicePlan:
        if view not in made:
            made[view] = replanner.plan(view)
        return replace(made[view], device=device)

    return plan


def replay(course: Course, plans: Plans, learners: Sequence[Learner]) -> Iterator[Played]:
    """Play a deployment again.

    Args:
        course: what happened.
        plans: makes the plans of its views.
        learners: of all devices, as they were before the first iteration.

    Yields:
        Every iteration, to the end of the last view's plan.

    >>> import joulemesh
    >>> from joulemesh.deploy.device.continuation import first_view
    >>> class Count:  # its one parameter counts rounds
    ...     def __init__(self): self.held = np.zeros(1)
    ...     def parameters(self): return self.held
    ...     def load(self, parameters): self.held = parameters
    ...     def train(self, iteration, rounds): self.held = self.held + rounds
    ...     def save(self): return {}
    ...     def restore(self, memory): pass
    >>> ground = Ground.of(joulemesh.Scenario(devices={"count": 3}, plan={"iterations": 2}))
    >>> course = Course((first_view(3),))
    >>> runs = list(replay(course, plans_of(ground), [Count() for _ in range(3)]))
    >>> bool(np.isclose(runs[-1].vectors[0, 0], sum(run.rounds.mean() for run in runs)))
    True
    """
    vectors = np.stack([np.asarray(learner.parameters()) for learner in learners])
    fleet = _Fleet(course, plans, learners, vectors)
    iteration = 1
    while iteration <= plans(course.view(iteration), course.view(iteration).members[0]).last:
        yield fleet.play(iteration)
        iteration += 1


class _Fleet:
    """All devices."""

    def __init__(
        self, course: Course, plans: Plans, learners: Sequence[Learner], vectors: Vector
    ) -> None:
        self.course, self.plans, self.learners = course, plans, learners
        self.vectors = vectors
        self.memory: list[Memory] = [learner.save() for learner in learners]

    def play(self, iteration: int) -> Played:
        """One iteration, from what was committed to what is."""
        view, vectors = self.course.view(iteration), self.vectors.copy()
        for newcomer, giver in self.course.gifts(iteration):
            vectors[newcomer] = vectors[giver]
        plans = {device: self.plans(view, device) for device in view.members}
        plans = {i: plan for i, plan in plans.items() if i in plan.active(iteration)}
        before, memory = vectors.copy(), list(self.memory)
        rounds = np.zeros(len(vectors), np.int64)
        for device, plan in plans.items():
            count = self.course.rounds.get((iteration, device), plan.rounds(iteration))
            rounds[device] = count
            vectors[device], memory[device] = self._trained(device, iteration, count, before)
        vectors = self._exchanged(iteration, plans, vectors)
        for device in plans:
            if (iteration, device) in self.course.lost:
                vectors[device], memory[device] = before[device], self.memory[device]
        self.vectors, self.memory = vectors, memory
        return self._priced(iteration, view.number, plans, rounds)

    def _trained(
        self, device: int, iteration: int, rounds: int, vectors: Vector
    ) -> tuple[Vector, Memory]:
        if not rounds:
            return vectors[device], self.memory[device]
        learner = self.learners[device]
        learner.load(vectors[device])
        learner.restore(self.memory[device])
        learner.train(iteration, rounds)
        return np.array(learner.parameters()), learner.save()

    def _exchanged(self, iteration: int, plans: Mapping[int, ViewPlan], vectors: Vector) -> Vector:
        """Carry every message of the exchange, except those that nobody waited for."""
        peers: dict[int, Any] = {}
        for device, plan in plans.items():
            peer = plan.peer(iteration)
            if peer is not None:
                peer.start(vectors[device])
                peers[device] = peer
        if not peers:
            return vectors
        route = plans[next(iter(peers))].route(iteration)
        assert route is not None  # there are peers
        alone: set[int] = set()  # all weight stays with a device that cannot do without a message
        for step in range(route.length):
            sent = [
                (device, to, payload)
                for device, peer in peers.items()
                if device not in alone
                for to, payload in peer.send(step)
            ]
            for sender, to, payload in sent:
                if (step, sender) not in self.course.absent.get((iteration, to), ()):
                    if to not in alone:
                        peers[to].receive(step, sender, payload)
                elif getattr(peers[to], "skips", False):
                    peers[to].skip(step, sender)
                else:
                    alone.add(to)
        after = vectors.copy()
        for device, peer in peers.items():
            if device not in alone:
                after[device] = peer.finish()
        return after

    def _priced(
        self, iteration: int, view: int, plans: Mapping[int, ViewPlan], rounds: IntArray
    ) -> Played:
        train_j, exchange_j = np.zeros(len(rounds)), np.zeros(len(rounds))
        slowest_s = exchange_s = 0.0
        for device, plan in plans.items():
            price = plan.price(iteration)
            train_j[device] = rounds[device] * price.round_j
            exchange_j[device], exchange_s = price.exchange_j, price.exchange_s
            slowest_s = max(slowest_s, float(rounds[device] * price.round_s))
        return Played(
            iteration, view, self.vectors, rounds, train_j, exchange_j, slowest_s + exchange_s
        )
