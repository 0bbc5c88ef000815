"""What a deployment should have computed: its views and absences, played again in one process.

Every device's learner trains as its device did, and every message is carried from its sender to its
receiver: no network, no time, no recovery. With no fault it is the simulated run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import QuantisedPeer, Vector
from joulemesh.deploy.device.continuation import DevicePlan, Replanner, first_view
from joulemesh.deploy.effects import Learner, ViewPlan
from joulemesh.deploy.record.history import History, views_of
from joulemesh.deploy.view import FINISHED, UNHELD, View, governing
from joulemesh.planning.ground import Ground

Place: TypeAlias = tuple[int, int]
"""(iteration, device)"""


@dataclass(frozen=True)
class Course:
    """What happened to a fleet, as far as its parameters depend on it."""

    views: tuple[View, ...]  # those that were installed, ascending, view 0 included
    # the messages that a device's exchange went without: (step, sender)
    absent: Mapping[Place, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    # local rounds, where they were not those of the plan: what was trained before a change of view
    # is kept
    rounds: Mapping[Place, int] = field(default_factory=dict)
    # iterations that a member never finished: it was gone, and what it had done was not committed.
    # What its own exchange went without is then known to nobody: a device that missed a message,
    # passed on what followed from that, and then was lost, is played as if it had missed none.
    lost: frozenset[Place] = frozenset()

    def view(self, iteration: int) -> View:
        return governing(self.views, iteration)

    def gifts(self, iteration: int) -> tuple[tuple[int, int], ...]:
        """(newcomer, giver): who takes up whose parameters before an iteration."""
        if self.view(iteration).start != iteration:
            return ()
        begun = (view for view in self.views if view.start == iteration)
        return tuple(gift for view in begun for gift in view.gifts)


@dataclass(frozen=True)
class Done:
    """An iteration that a device committed."""

    view: int  # number of the view by whose plan it was done, or in which it was given
    rounds: int  # local rounds that were run
    # (step, sender): messages that its exchange went without
    absent: tuple[tuple[int, int], ...] = ()


def course_of(views: Sequence[View], done: Mapping[Place, Done]) -> Course:
    planned = sorted(
        (view for view in views if view.digest not in (FINISHED, UNHELD)),
        key=lambda view: view.number,
    )
    start = {view.number: view.start for view in planned}
    last = max((iteration for iteration, _ in done), default=0)
    members = {(t, device) for t in range(1, last + 1) for device in governing(planned, t).members}
    # A gift is of the iteration before its view begins: nobody computes that by the view's plan.
    kept = {place: one for place, one in done.items() if start.get(one.view, 0) <= place[0]}
    kept = {place: one for place, one in kept.items() if place in members}
    return Course(
        tuple(planned),
        absent={place: one.absent for place, one in kept.items() if one.absent},
        rounds={place: one.rounds for place, one in kept.items()},
        lost=frozenset(members - set(kept)),
    )


def course_of_histories(
    histories: Sequence[History], devices: int, spares: Collection[int] = ()
) -> Course:
    views = (first_view(devices, spares), *(seen.view for seen in views_of(histories)))
    done = {
        (iteration, one.device): Done(int(view), int(rounds), one.absent.get(iteration, ()))
        for one in histories
        for iteration, view, rounds in zip(
            one.iterations.tolist(), one.column("view"), one.column("rounds"), strict=True
        )
    }
    return course_of(views, done)


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Memory = Mapping[str, NDArray[Any]]

Plans: TypeAlias = Callable[[View, int], ViewPlan]
"""(view, device) -> the plan of the view for the device."""


@dataclass(frozen=True, eq=False)
class Played:
    """One iteration."""

    iteration: int  # its number, from 1
    view: int  # the number of the view whose plan it follows
    vectors: Vector  # [N, P]: every device's parameters after it
    rounds: IntArray  # int64 [N]: local rounds
    train_j: FloatArray  # float64 [N]: joules of these
    exchange_j: FloatArray  # float64 [N]: joules of the exchange, as planned
    seconds: float  # of the slowest training and the exchange, as planned


def plans_of(ground: Ground, wire: np.dtype[Any] | None = None) -> Plans:
    """The plans of a scenario's views; each is made once for all devices."""
    replanner, made = Replanner(ground, 0), dict[View, DevicePlan]()
    replanner.wire = wire

    def plan(view: View, device: int) -> DevicePlan:
        if view not in made:
            made[view] = replanner.plan(view)
        return replace(made[view], device=device)

    return plan


def replay(course: Course, plans: Plans, learners: Sequence[Learner]) -> Iterator[Played]:
    vectors = np.stack([np.asarray(learner.parameters()) for learner in learners])
    fleet = _Fleet(course, plans, learners, vectors)
    iteration = 1
    while iteration <= plans(course.view(iteration), course.view(iteration).members[0]).last:
        yield fleet.play(iteration)
        iteration += 1


class _Fleet:
    def __init__(
        self, course: Course, plans: Plans, learners: Sequence[Learner], vectors: Vector
    ) -> None:
        self.course, self.plans, self.learners = course, plans, learners
        self.vectors = vectors
        self.memory: list[Memory] = [learner.save() for learner in learners]
        self.agreed, self.owed, self.quantised = vectors.copy(), np.zeros_like(vectors), False

    def play(self, iteration: int) -> Played:
        view, vectors = self.course.view(iteration), self.vectors.copy()
        for newcomer, giver in self.course.gifts(iteration):
            vectors[newcomer] = (self.agreed if self.quantised else vectors)[giver]
            self.agreed[newcomer] = vectors[newcomer]
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
            if isinstance(peer, QuantisedPeer):
                self.quantised = True
                peer.continues(self.agreed[device], self.owed[device])
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
            if isinstance(peer, QuantisedPeer):
                self.agreed[device], self.owed[device] = after[device], peer.owed
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
