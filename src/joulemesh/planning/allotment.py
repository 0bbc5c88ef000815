"""Everybody's rounds of all iterations at once, within batteries, deadline and total time."""

from __future__ import annotations

__all__ = ["Allotment"]

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.planning.clock import TimeLimits, keeps_total, longest_s
from joulemesh.planning.ground import Ground
from joulemesh.planning.policy import Policy, allocate
from joulemesh.planning.waiting import Purse, Tried, least_s, most_rounds

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Allotment:
    """The rounds that a policy gives the devices that take part, A of them.

    Attributes:
        ground: the scenario, made ready.
        policy: how rounds are spread over the iterations.
        iterations: number n of iterations of the whole plan.
        round_s: float64 [A]: seconds of one round.
        limits: the time for the iterations to come.
        first: the first of these, from 0.

    >>> from joulemesh.scenario import Scenario
    >>> ground = Ground.of(Scenario(plan={"rounds": "uniform"}))
    >>> limits = TimeLimits(deadline_s=4.0, total_s=None)
    >>> rest = Allotment(ground, ground.policy, 5, np.array([0.5, 1.0]), limits, first=2)
    >>> rest.of(np.array([30, 7]), np.ones(3))[0].tolist()
    [[6, 2], [6, 2], [6, 3]]
    """

    ground: Ground
    policy: Policy
    iterations: int
    round_s: FloatArray
    limits: TimeLimits
    first: int = 0

    @property
    def rows(self) -> int:
        """Number of iterations to come."""
        return self.iterations - self.first

    def of(self, total: IntArray, exchange_s: FloatArray) -> tuple[IntArray, IntArray]:
        """Rounds [rows, A], and the caps [rows, A] or [1, A] that they keep.

        Args:
            total: [A] rounds that the batteries pay for.
            exchange_s: [rows] seconds of the exchanges.
        """
        if self.policy.fit is not None and self.limits.total_s is not None:
            return self._fitted(total, exchange_s)
        cap = self._only_where_trained(self.limits.caps(exchange_s, self.round_s))
        return self._by_policy(total, cap), cap

    def paid(self, purse: Purse, exchange_s: FloatArray) -> Tried:
        """Rounds that the batteries pay for, with all that is drawn at rest meanwhile.

        Args:
            purse: of the A devices.
            exchange_s: [rows] seconds of the exchanges.

        Raises:
            InfeasibleError: no rounds are paid for in time.
        """
        least = self.policy.least(self.ground.scenario.plan)
        low_s = least_s(exchange_s, self.round_s, least)
        if not purse.waiting.counted:
            total = purse.total(low_s)
            return Tried(low_s, *self.of(total, exchange_s), total)

        def allot(limit_s: float, keep: bool) -> Tried | None:
            total = purse.total(limit_s)
            if (total < self.rows * least).any():
                return None
            limits = replace(self.limits, total_s=limit_s) if keep else self.limits
            try:
                rounds, cap = replace(self, limits=limits).of(total, exchange_s)
            except (InfeasibleError, ScenarioError):
                return None
            in_time = keeps_total(limit_s, rounds, self.round_s, exchange_s)
            return Tried(limit_s, rounds, cap, total) if in_time else None

        high_s = purse.longest_s(self.limits, self.rows, least)
        if self.policy.spends == "least":
            high_s = low_s
        found = most_rounds(
            low_s,
            high_s,
            allot,
            lambda one: longest_s(one.rounds, self.round_s, exchange_s),
            self.rows * len(self.round_s),
        )
        if found is not None:  # its caps were those of a limit that was only tried
            fitted = self.policy.fit is not None and self.limits.total_s is not None
            caps = self.limits.loose_caps if fitted else self.limits.caps
            cap = self._only_where_trained(caps(exchange_s, self.round_s))
            return replace(found, cap=np.maximum(cap, found.rounds.max(axis=0)))
        self.of(purse.total(low_s), exchange_s)  # refused here, if at all
        raise InfeasibleError(
            f'plan.rounds = "{self.policy.name}" finds no rounds for which the batteries pay with '
            'what is drawn at rest (devices.idle_w); use "theorem4" or "spread"',
            code="idle",
            field="plan.rounds",
        )

    def _by_policy(self, total: IntArray, cap: IntArray) -> IntArray:
        narrow = cap[0] if len(cap) == 1 else cap
        options = self.ground.scenario.plan
        return allocate(
            self.policy, self.iterations, total, narrow, options=options, start=self.first + 1
        )

    def _fitted(self, total: IntArray, exchange_s: FloatArray) -> tuple[IntArray, IntArray]:
        """Rounds of a policy that fits them to the total time by itself, and their caps."""
        limits, round_s, fit = self.limits, self.round_s, self.policy.fit
        assert fit is not None  # for mypy: such policies only
        assert limits.total_s is not None
        cap = self._only_where_trained(limits.loose_caps(exchange_s, round_s))
        rounds = self._by_policy(total, cap)
        if keeps_total(limits.total_s, rounds, round_s, exchange_s):
            return rounds, cap
        # All iterations that train are given the cap of the tightest, so that they are alike.
        trains = np.broadcast_to((cap > 0).any(axis=1), (self.rows,))
        count = max(1, int(trains.sum()))
        cap = np.where(trains[:, None], cap[cap.any(axis=1)].min(axis=0), 0)
        most = np.minimum(total, count * np.minimum(cap.max(axis=0), total // count + 1))
        goal = fit(count, most, round_s, limits.training_s(exchange_s))
        return self._by_policy(goal, cap), cap

    def _only_where_trained(self, cap: IntArray) -> IntArray:
        """No rounds in the iterations that are kept for mixing."""
        trains = self.ground.trains(self.iterations)[self.first :]
        return cap if trains.all() else cap * trains[:, None]
