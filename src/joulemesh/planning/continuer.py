"""Makes the rest of a plan: who can go on, for how many iterations, with how many rounds."""

from __future__ import annotations

__all__ = ["Continuer"]

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.planning.allotment import Allotment
from joulemesh.planning.budget import missing_time
from joulemesh.planning.exact import most_affordable
from joulemesh.planning.ground import Ground
from joulemesh.planning.policy import Policy
from joulemesh.planning.pricing import Prices
from joulemesh.planning.remaining import Remaining, cut_off
from joulemesh.planning.rounds import stand_in
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.traced import causal_planner
from joulemesh.planning.waiting import Purse, Tried, Waiting, least_s
from joulemesh.registries import POLICIES
from joulemesh.units import duration, energy

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class _PolicyError(Exception):
    """The policy does not allocate the rest of a plan, though it is paid for."""

    def __init__(self, reason: InfeasibleError | ScenarioError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Continuer:
    """Makes the rest of one plan; afterwards it has ``notes``, one line each.

    Args:
        ground: the scenario, made ready.
        rest: who takes part from which iteration on, and what they have left.
        iterations: number n of iterations of the whole plan.
    """

    def __init__(self, ground: Ground, rest: Remaining, iterations: int) -> None:
        self.ground, self.rest, self.iterations = ground, rest, iterations
        self.options, self.devices = ground.scenario.plan, ground.world.devices
        self.limits = rest.limits(ground.scenario)
        self.costs = ground.latest_forecast(rest.first)
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.policy = self._policy()
        self.least = self.policy.least(self.options)
        self._schemes: dict[int, Scheme] = {}
        self._latest: tuple[int, Prices] | None = None

    def _policy(self) -> Policy:
        """The scenario's, or one in its place if it cannot allocate the rest of a plan."""
        asked = self.ground.policy
        return asked if asked.causal else self._instead()

    def _instead(self) -> Policy:
        asked = self.ground.policy
        name = stand_in(asked, self.options)
        self.notes.append(
            f'plan.rounds = "{asked.name}" cannot plan the rest of a plan anew; the rounds from '
            f'iteration {self.rest.first + 1} on follow "{name}"'
        )
        return POLICIES[name]

    def timeline(self) -> Timeline:
        """Every iteration of the rest.

        Raises:
            InfeasibleError: not even one can be paid for in time; one line.
        """
        if self.limits.total_s == 0.0:
            raise InfeasibleError(
                f"no time is left for iteration {self.rest.first + 1}: "
                f"{duration(self.rest.elapsed_s, digits=4)} of budget.total_s are over; raise it "
                "and deploy again",
                constraint="time",
            )
        try:
            return self._planned()
        except _PolicyError as refusal:
            if self.policy is not self.ground.policy:
                raise refusal.reason from None
        self.policy = self._instead()
        self.least = self.policy.least(self.options)
        return self._planned()

    def _planned(self) -> Timeline:
        self._leave_unpaid()
        n, ground = self.iterations, self.ground
        leaving = self.options.on_depletion == "leave" and ground.policy.causal
        if not (leaving and self._in_time(n) and not self._paid(n)):
            n = self._longest()
            if not ground.world.changes:
                return self._result(self._static(n))
        return self._result(causal_planner(ground, n, rest=self.rest).walk())

    def _result(self, timeline: Timeline) -> Timeline:
        return replace(timeline, events=(*self.events, *timeline.events))

    # Who takes part -----------------------------------------------------------------------------

    def _leave_unpaid(self) -> None:
        """Go on without those who cannot pay for one iteration, and those whom they cut off."""
        self._leave_cut_off()
        while self.rest.active.sum() >= 2:
            prices, who = self._prices(self.rest.first + 1), self.rest.active
            price_j, waiting = prices.energy_j[0], Waiting.at(self.devices)
            if waiting.counted:
                rest_j = waiting.among(who).per_iteration(prices.latency_s[:1], self.least)[0]
                price_j = price_j.copy()
                price_j[who] += rest_j
            affords = most_affordable(self.rest.battery_j, self.devices.round_energy_j, price_j)
            broke = self.rest.active & (affords < self.least)
            if not broke.any():
                return
            if (self.rest.active & ~broke).sum() < 2:
                raise self._too_poor(broke, price_j)
            self._leave(broke, "depleted", "the battery cannot pay for another iteration")
            self._leave_cut_off()
        raise InfeasibleError(
            f"fewer than two devices take part from iteration {self.rest.first + 1} on: there is "
            "nobody to exchange with; start others again",
            constraint="topology",
        )

    def _leave_cut_off(self) -> None:
        lost = cut_off(self.ground.world.graph, self.rest.active, self.rest.cut)
        if lost.any():
            self._leave(lost, "cut-off", "no path leads to the larger part of the network")

    def _leave(self, lost: BoolArray, kind: str, detail: str) -> None:
        who = tuple(np.flatnonzero(lost).tolist())
        self.events.append(Event(self.rest.first + 1, kind, who, detail))
        self.rest = self.rest.without(lost)
        self._schemes.clear()
        self._latest = None

    def _too_poor(self, broke: BoolArray, price_j: FloatArray) -> InfeasibleError:
        need_j = price_j + self.least * self.devices.round_energy_j
        device = int(np.argmax(np.where(broke, need_j - self.rest.battery_j, -np.inf)))
        return InfeasibleError(
            f"fewer than two devices can pay for iteration {self.rest.first + 1}: device {device} "
            f"needs {energy(float(need_j[device]), digits=6)} and has "
            f"{energy(float(self.rest.battery_j[device]), digits=6)} left; charge the batteries",
            device=device,
            constraint="energy",
        )

    # How many iterations ------------------------------------------------------------------------

    def _scheme(self, n: int) -> Scheme:
        """The scheme of those who take part, in a plan of n iterations."""
        key = 0 if self.ground.alike else n  # a search for a ring takes a while
        if key not in self._schemes:
            rest = self.rest
            self._schemes[key] = self.ground.ready_among(
                rest.active, self.costs, rest.battery_j, n, cut=rest.cut, over=rest.first
            )
        return self._schemes[key]

    def _prices(self, n: int) -> Prices:
        """Of the exchanges until iteration n; random schedules take long to price."""
        if self._latest is None or self._latest[0] != n:
            made = self.ground.prices(self._scheme(n), self.costs, self.rest.first, n)
            self._latest = n, made
        return self._latest[1]

    def _purse(self, prices: Prices, n: int) -> Purse:
        """Of those who take part: what they have left, and what exchanges and waiting take."""
        paid = prices.total_j(n - self.rest.first)
        held_j, round_j = self.rest.battery_j, self.devices.round_energy_j
        return Purse(held_j, *paid, round_j, Waiting.at(self.devices)).among(self.rest.active)

    def _total(self, prices: Prices, n: int) -> IntArray:
        """[A] rounds that the batteries pay for beside the exchanges, if iterations are short."""
        purse, rows = self._purse(prices, n), n - self.rest.first
        exchange_s = prices.latency_s if len(prices.latency_s) == 1 else prices.latency_s[:rows]
        return purse.total(least_s(exchange_s, purse.waiting.round_s, rows, self.least))

    def _in_time(self, n: int) -> bool:
        """Is there time for the exchanges and the least rounds until iteration n?"""
        round_s = self.devices.round_latency_s[self.rest.active]
        limits = (self.limits.deadline_s, self.limits.total_s)
        exchange_s = self._prices(n).latency_s
        return not missing_time(n - self.rest.first, self.least, *limits, exchange_s, round_s)

    def _paid(self, n: int, *, trained: bool = True) -> bool:
        """Are the exchanges and the least rounds until iteration n paid for, in time?

        Where no round is compulsory, somebody still should train one, unless told otherwise.
        """
        if not self._in_time(n):
            return False
        total = self._total(self._prices(n), n)
        if (total < (n - self.rest.first) * self.least).any():
            return False
        idle = not self.ground.trains(n)[self.rest.first :].any()
        return bool(self.least or idle or not trained or self._allotted(n).rounds.any())

    def _longest(self) -> int:
        """The most iterations, up to those of the plan, that everybody can pay for in time."""
        for trained in (True, False):
            low, high = self.rest.first, self.iterations
            if self._paid(high, trained=trained):
                return high
            while low < high:
                middle = (low + high + 1) // 2
                if self._paid(middle, trained=trained):
                    low = middle
                else:
                    high = middle - 1
            if low > self.rest.first:
                self.notes.append(
                    f"the plan ends with iteration {low} instead of {self.iterations}: what is "
                    "left does not pay for more"
                )
                return low
        raise self._too_late()

    def _too_late(self) -> InfeasibleError:
        exchange_s = float(self._prices(self.rest.first + 1).latency_s[0])
        slowest_s = float(self.devices.round_latency_s[self.rest.active].max())
        training = f" and training {duration(self.least * slowest_s, digits=4)}"
        return InfeasibleError(
            f"no time is left for iteration {self.rest.first + 1}: the exchange among "
            f"{int(self.rest.active.sum())} devices takes {duration(exchange_s, digits=4)}"
            f"{training if self.least else ''}; raise budget.deadline_s or budget.total_s and "
            "deploy again",
            constraint="time",
        )

    # The rounds ---------------------------------------------------------------------------------

    def _allotted(self, n: int) -> Tried:
        """Rounds [rows, A] and their caps, of those who take part."""
        prices, who = self._prices(n), self.rest.active
        rest = Allotment(
            self.ground,
            self.policy,
            n,
            self.devices.round_latency_s[who],
            self.limits,
            self.rest.first,
        )
        try:
            return rest.paid(self._purse(prices, n), prices.latency_s)
        except (InfeasibleError, ScenarioError) as refusal:
            raise _PolicyError(refusal) from None

    def _static(self, n: int) -> Timeline:
        """All iterations at once."""
        scheme, prices, first = self._scheme(n), self._prices(n), self.rest.first
        who, rows = self.rest.active, n - first
        found, total = self._allotted(n), np.zeros(len(who), np.int64)
        parts = (found.rounds, found.cap)
        rounds, cap = (np.zeros((len(part), len(who)), np.int64) for part in parts)
        rounds[:, who], cap[:, who], total[who] = found.rounds, found.cap, found.total
        return Timeline(
            scheme=scheme,
            route=scheme.route(self.costs, first),
            rounds=rounds,
            cap=cap,
            total=total,
            exchange_j=prices.energy_j,
            receive_j=prices.receive_j,
            exchange_s=np.broadcast_to(prices.latency_s, (rows,)),
            active=np.broadcast_to(who, rounds.shape),
            exchanged=~scheme.silent(first, n),
            flooded=self.ground.expected_floods(scheme, first, n),
            schemes=((first, scheme),),
            first=first,
        )
