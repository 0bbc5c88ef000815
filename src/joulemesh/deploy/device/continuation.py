"""The plan of a view, as one device follows it: what answers the effect `Plan`.

Every device makes the same plan from the same view; its digest says so (`digest_of_timeline`: what
is decided, no joules and no seconds). Nothing of training is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Peer, QuantisedPeer, RoundedPeer, SummingPeer
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import Edit, InfeasibleError, ScenarioError, named_refusals
from joulemesh.deploy.effects import Planned, Price, ViewPlan
from joulemesh.deploy.view import View
from joulemesh.planning.ground import Ground, Workload
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan_of
from joulemesh.planning.walk import Continuation, Remaining, continue_plan
from joulemesh.scenario import Scenario
from joulemesh.world import build_world


def first_view(devices: int, spares: Collection[int] = ()) -> View:
    """View 0: all devices but spare ones, with full batteries, from the first iteration on.

    Its joules are left out: they are those of the plan.

    >>> first_view(3) == View(number=0, start=1, members=(0, 1, 2))
    True
    """
    return View(0, 1, tuple(one for one in range(devices) if one not in spares))


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """The plan of one view, for one device: a `ViewPlan`."""

    view: View  # with its digest
    device: int  # whose part it is
    rest: Continuation  # everybody's
    # the type in which numbers travel, if it has fewer digits than they are computed with
    wire: np.dtype[Any] | None = None

    @property
    def last(self) -> int:
        return self.rest.last

    def rounds(self, iteration: int) -> int:
        return int(self.rest.rounds(iteration)[self.device])

    def active(self, iteration: int) -> tuple[int, ...]:
        """The members that take part: those who can pay, and are not cut off by others."""
        return tuple(self.rest.active(iteration).nonzero()[0].tolist())

    def route(self, iteration: int) -> Route | None:
        """Everybody's messages of the exchange; None where there is no exchange."""
        return self.rest.route(iteration)

    def peer(self, iteration: int) -> Peer | None:
        """What this device does in the exchange; None where it takes no part in one."""
        route = self.rest.route(iteration)
        if route is None or not (route.edges == self.device).any():
            return None
        scheme = self.rest.scheme(iteration)
        made = scheme.peer(self.device, route)
        if scheme.width is not None and isinstance(made, SummingPeer):
            return QuantisedPeer(made, scheme.width.bits, packed=True)
        return made if self.wire is None else RoundedPeer(made, self.wire)

    def exact(self, iteration: int) -> bool:
        """Does everybody that takes part hold the same mean after the exchange?"""
        return self.rest.exact(iteration)

    def price(self, iteration: int) -> Price:
        devices, exchange_s = self.rest.ground.world.devices, self.rest.exchange_s(iteration)
        rounds = self.rounds(iteration)
        round_s, round_j = devices.round_latency_s[self.device], devices.round_energy_j[self.device]
        if rounds and self.rest.timeline.window_s is not None:
            round_s, round_j = (one[self.device] / rounds for one in self.rest.trained(iteration))
        return Price(
            round_j=float(round_j),
            round_s=float(round_s),
            exchange_j=float(self.rest.exchange_j(iteration)[self.device]),
            exchange_s=exchange_s,
            iteration_s=self.rest.training_s(iteration) + exchange_s,
            rest_j=float(self.rest.rest_j(iteration)[self.device]),
        )

    @cached_property
    def _ahead_j(self) -> NDArray[np.float64]:
        """[n + 1]: joules of this device's part from each iteration on."""
        rest, timeline = self.rest, self.rest.timeline
        devices, mine = rest.ground.world.devices, timeline.active[:, self.device]
        each_j = timeline.rounds[:, self.device] * devices.round_energy_j[self.device]
        if timeline.window_s is not None:
            rows = range(len(timeline.rounds))
            each_j = np.array([timeline.trained(devices, row)[1][self.device] for row in rows])
        each_j = each_j + np.where(mine, timeline.exchange.exchange_j[:, self.device], 0.0)
        if devices.idle_w is not None:
            iterations = range(rest.start, rest.last + 1)
            each_j = each_j + [rest.rest_j(t)[self.device] for t in iterations]
        return np.append(np.cumsum(each_j[::-1])[::-1], 0.0)

    def rest_j(self, iteration: int) -> float:
        """Joules of this device's part, from an iteration to the last."""
        return float(self._ahead_j[iteration - self.rest.start])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one line each: who takes no part and why, above all."""
        said = [
            f"iteration {event.iteration}: {event.kind} {', '.join(map(str, event.devices))} "
            f"({event.detail})"
            for event in self.rest.events
        ]
        return (*self.rest.notes, *said)


@dataclass(frozen=True, eq=False)
class LonePlan:
    """The plan of the one device of two that goes on alone: a `ViewPlan` without exchanges.

    It trains the rounds of the fleet's plan, as far as an equal share of what its battery has left
    pays for them in each iteration.
    """

    view: View  # of which it is the only member
    whole: Plan  # the fleet's plan

    @property
    def device(self) -> int:
        return self.view.members[0]

    @property
    def last(self) -> int:
        return self.whole.iterations

    def rounds(self, iteration: int) -> int:
        iterations = self.last - self.view.start + 1
        share_j = self.view.left_j[0] / iterations
        devices, planned = self.whole.world.devices, self.whole.rounds[iteration - 1, self.device]
        price_j = float(devices.round_energy_j[self.device])
        if devices.idle_w is not None:
            idle_w = float(devices.idle_w[self.device])
            price_j += idle_w * float(devices.round_latency_s[self.device])
        return int(min(planned, share_j // price_j if price_j else planned))

    def active(self, iteration: int) -> tuple[int, ...]:
        return self.view.members

    def route(self, iteration: int) -> Route | None:
        return None

    def peer(self, iteration: int) -> Peer | None:
        return None

    def exact(self, iteration: int) -> bool:
        return True

    def price(self, iteration: int) -> Price:
        devices = self.whole.world.devices
        round_s = float(devices.round_latency_s[self.device])
        seconds = self.rounds(iteration) * round_s
        idle_w = 0.0 if devices.idle_w is None else float(devices.idle_w[self.device])
        round_j = float(devices.round_energy_j[self.device])
        return Price(round_j, round_s, 0.0, 0.0, seconds, idle_w * seconds)

    def rest_j(self, iteration: int) -> float:
        prices = ((self.rounds(t), self.price(t)) for t in range(iteration, self.last + 1))
        return sum(rounds * price.round_j + price.rest_j for rounds, price in prices)

    @classmethod
    def of(cls, view: View, whole: Plan) -> LonePlan:
        made = cls(view, whole)
        rounds = [made.rounds(t) for t in range(view.start, made.last + 1)]
        if not all(rounds):
            raise InfeasibleError(
                "{device} is alone, and its battery does not pay for a round in each iteration "
                "from {first} to {last}; charge it",
                code="energy",
                device=made.device,
                figures={"first": view.start, "last": made.last},
            )
        digest = hashlib.sha256(repr((view.number, view.start, view.members, rounds)).encode())
        return replace(made, view=replace(view, digest=digest.hexdigest()))


class Replanner:
    """Makes the plans of views, on one device.

    >>> import joulemesh
    >>> ground = Ground.of(joulemesh.Scenario.preset("adaptive"))
    >>> mine = Replanner(ground, 3).plan(first_view(20))
    >>> whole = joulemesh.plan(ground.scenario)
    >>> mine.last, bool(mine.rounds(1) == whole.rounds[0, 3])
    (100, True)
    """

    def __init__(self, ground: Ground, device: int, reserve: float = 0.0) -> None:
        self.ground, self.device, self.reserve = ground, device, reserve
        self.wire: np.dtype[Any] | None = None
        """The type in which numbers travel, if it has fewer digits than devices compute with."""
        self.alone = False
        """May one of two devices go on alone?"""

    @classmethod
    def of(cls, scenario: Scenario, work: Workload, device: int) -> Replanner:
        """From a scenario and its sizes, which a device is told: it has not everybody's data."""
        return cls(Ground(scenario, work, build_world(scenario, work.round_samples)), device)

    @cached_property
    def whole(self) -> Plan:
        """The fleet's plan, for all devices and without failures."""
        return plan_of(self.ground, proof=False)

    def plan(self, view: View) -> DevicePlan:
        with named_refusals(lambda: self.ground.names):
            made = Continuation.of_plan(self.whole) if view.number == 0 else self._rest(view)
            require_peers(made)
        return DevicePlan(replace(view, digest=made.digest), self.device, made, self.wire)

    def _rest(self, view: View) -> Continuation:
        """The rest of the plan: all of it, with everybody, beside the reserve; or what can be."""
        with suppress(InfeasibleError):
            made = self._rest_beside(view, self.reserve)
            short = any(event.kind == "depleted" for event in made.events)
            if made.last == self.whole.iterations and not short:
                return made
        return self._rest_beside(view, 0.0)

    def _rest_beside(self, view: View, reserve: float) -> Continuation:
        rest = Remaining.of(
            self.ground,
            start=view.start,
            members=view.members,
            left_j=view.left_j,
            cut=view.cut,
            elapsed_s=view.elapsed_s,
            reserve=reserve,
        )
        return continue_plan(self.whole, rest)

    def answer(self, view: View) -> Planned:
        """What follows the effect `Plan`: the plan, or why there is none, in one line."""
        try:
            if self.alone and len(view.members) == 1:
                return Planned(view, LonePlan.of(view, self.whole))
            return Planned(view, self.plan(view))
        except (InfeasibleError, ScenarioError) as refusal:
            return Planned(view, None, " ".join(str(refusal).split()))


def require_peers(made: Continuation) -> None:
    """Refuse a plan whose schemes do not say what one device does."""
    exchanged, first = made.timeline.exchanged, made.timeline.first
    _require_whole_gifts(made)
    for since, scheme in made.timeline.schemes:
        row = since - first + int(exchanged[since - first :].argmax())
        route = made.route(made.start + row)
        if route is None:
            continue
        try:
            made.scheme(made.start + row).peer(int(route.edges[0, 0]), route)
        except (AttributeError, NotImplementedError):
            raise ScenarioError(
                f"the scheme {scheme.name!r} is for simulation only: it says what an exchange does "
                "to all devices, and not what one device does (it has no peer); choose another "
                "plan.aggregation"
            ) from None


def _require_whole_gifts(made: Continuation) -> None:
    """Refuse averages that a newcomer would be given with fewer digits than others hold."""
    scenario = made.ground.scenario
    bits = scenario.network.bits_per_parameter
    double = scenario.training.precision == "float64"
    if made.timeline.scheme.width is not None and double and bits < 64:
        raise ScenarioError(
            "quantised averages (plan.bits) need every device to hold the same numbers, and "
            f'those of training.precision = "float64" are given in {bits} bits',
            remedies=[
                (Edit("network.bits_per_parameter", 64),),
                (Edit("training.precision", "float32"),),
            ],
        )


def _is_a_view_plan(plan: DevicePlan | LonePlan) -> ViewPlan:
    return plan
