"""The rest of a plan, made again when devices have left or come back.

From who takes part, what they have left and which links carry nothing, every device makes the same
rest of the plan: scheme and routes on the remaining graph, and rounds by the policy over the
iterations to come. Nothing is planned that is not paid for. Where not all of it can be paid:

- a device that cannot pay for one more iteration takes no part (and whoever it cuts off);
- with ``plan.on_depletion = "leave"`` the others go on until they leave, as in any plan;
- otherwise there are fewer iterations: as many as everybody can pay for in time.
"""

from __future__ import annotations

__all__ = ["Continuation", "continue_plan"]

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import ScenarioError
from joulemesh.planning.clock import keeps_total
from joulemesh.planning.continuer import Continuer
from joulemesh.planning.digest import digest_of_timeline
from joulemesh.planning.exact import exact_sum, most_affordable
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.planning.remaining import Remaining
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.waiting import Waiting

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Continuation:
    """A plan from some iteration on. Iterations count from 1.

    Attributes:
        ground: the scenario, made ready.
        timeline: every iteration of it.
        notes: what a reader should know, one line each.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> rest = Remaining.of(plan.ground, start=41, members=range(19), left_j=[100.0] * 19)
    >>> made = continue_plan(plan, rest)
    >>> made.start, made.last, int(made.rounds(41)[19]), made.active(41).sum()
    (41, 100, 0, np.int64(19))
    """

    ground: Ground
    timeline: Timeline
    notes: tuple[str, ...] = ()

    @classmethod
    def of_plan(cls, plan: Plan) -> Continuation:
        """A whole plan, from its first iteration on."""
        return cls(plan.ground, plan.timeline, plan.notes)

    @property
    def start(self) -> int:
        """The first iteration."""
        return self.timeline.first + 1

    @property
    def last(self) -> int:
        """The last iteration."""
        return self.timeline.first + len(self.timeline.rounds)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it decides; see `digest_of_timeline`."""
        return digest_of_timeline(self.ground.scenario, self.ground.work.model_bits, self.timeline)

    @property
    def events(self) -> tuple[Event, ...]:
        """Departures and outages."""
        return self.timeline.events

    def rounds(self, iteration: int) -> IntArray:
        """int64 [N]: local rounds; 0 for a device that takes no part."""
        return np.asarray(self.timeline.rounds[self._row(iteration)])

    def active(self, iteration: int) -> BoolArray:
        """bool [N]: who takes part."""
        return np.asarray(self.timeline.active[self._row(iteration)])

    def exchange_j(self, iteration: int) -> FloatArray:
        """float64 [N]: joules of the exchange."""
        row = self._row(iteration)
        prices = self.timeline.exchange_j
        return np.asarray(prices[0 if len(prices) == 1 else row])

    def exchange_s(self, iteration: int) -> float:
        """Seconds of the exchange."""
        return float(self.timeline.exchange_s[self._row(iteration)])

    def training_s(self, iteration: int) -> float:
        """Seconds of the slowest training."""
        return float((self.rounds(iteration) * self.ground.world.devices.round_latency_s).max())

    def rest_j(self, iteration: int) -> FloatArray:
        """float64 [N]: joules at rest, of those who take part, during the whole iteration."""
        seconds = self.training_s(iteration) + self.exchange_s(iteration)
        waits_j = Waiting.at(self.ground.world.devices).rounded(seconds)
        return np.where(self.active(iteration), waits_j, 0.0)

    def scheme(self, iteration: int) -> Scheme:
        """The scheme of an iteration."""
        t = self._row(iteration) + self.timeline.first
        return [scheme for since, scheme in self.timeline.schemes if since <= t][-1]

    def route(self, iteration: int) -> Route | None:
        """What is sent in an iteration; None where nothing is."""
        row, timeline = self._row(iteration), self.timeline
        t = row + timeline.first
        route: Route | None = timeline.route
        if timeline.routes is not None:
            route = timeline.routes[row]
        elif timeline.scheme.random:
            route = self.scheme(iteration).route(self.ground.costs(t), t)
        return route if route is not None and len(route.edge) else None

    def exact(self, iteration: int) -> bool:
        """Do all who take part hold the same mean after the exchange?"""
        row = self._row(iteration)
        exact = self.scheme(iteration).exact_at(row + self.timeline.first)
        return exact and bool(self.timeline.exchanged[row])

    def _row(self, iteration: int) -> int:
        if not self.start <= iteration <= self.last:
            raise ScenarioError(f"iteration {iteration} is not one of {self.start}..{self.last}")
        return iteration - self.start


def continue_plan(plan: Plan, rest: Remaining) -> Continuation:
    """The rest of a plan.

    What was planned stays where nothing has happened to it: those who were to take part do, over
    all their links, and can still pay for it in time.

    Args:
        plan: the whole.
        rest: who takes part from which iteration on, and what they have left.

    Raises:
        InfeasibleError: not even one iteration can be paid for in time; one line.
        ScenarioError: the plan has no such iteration.
    """
    ground = plan.ground
    if not rest.first < plan.iterations:
        raise ScenarioError(
            f"the plan ends with iteration {plan.iterations}: none is left from {rest.first + 1} on"
        )
    planned = plan.timeline.from_row(rest.first)
    if _holds(planned, rest, ground):
        return Continuation(ground, planned, plan.notes)
    continuer = Continuer(ground, rest, plan.iterations)
    return Continuation(ground, continuer.timeline(), tuple(continuer.notes))


def _holds(planned: Timeline, rest: Remaining, ground: Ground) -> bool:
    """Can the rest of a plan be carried out as it was planned?"""
    devices, rounds = ground.world.devices, planned.rounds
    if rest.cut.any() or not np.array_equal(rest.active, planned.active[0]):
        return False
    exchange_j, rest_j = exact_sum(
        planned.exchange_j, len(rounds) if len(planned.exchange_j) == 1 else 1
    )
    waits_j = Waiting.at(devices).over(planned)
    fixed = (exchange_j, rest_j, *waits_j)
    paid = most_affordable(rest.battery_j, devices.round_energy_j, *fixed)
    total_s = rest.limits(ground.scenario).total_s
    return bool((paid >= rounds.sum(axis=0)).all()) and (
        total_s is None or keeps_total(total_s, rounds, devices.round_latency_s, planned.exchange_s)
    )
