"""The number of iterations that balances rounds against exchanges, by their prices: no training.

The corrected bound (notes: corrected-theorem-2), with n iterations of τ = Q/n rounds and a learning
rate that is tuned to the Q rounds of a device, η = λ/(mQ), exceeds what no plan changes by
(Mλ/2m²)·(σ/Q + δ²/n): noise falls with the rounds that are trained, drift with how often devices
average. The n chosen has the least 1/Q(n) + κ/n, where κ = δ²/σ if the constants of ``[bounds]``
are known and 1 otherwise. Q(n) is what batteries and time leave for rounds beside n exchanges, so
it falls as n grows. Where it falls by e rounds per exchange, the optimum has √(e/κ) rounds per
iteration: exchanges that cost as much as a round are worth a round each (notes: auto-iterations).
"""

from __future__ import annotations

__all__ = ["Merit", "least_of"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.waiting import Waiting

if TYPE_CHECKING:
    from joulemesh.planning.static import StaticPlanner

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_PRICED = 256  # exchanges whose mean price stands for all, where they differ
_GRID = 24
_TRIED = 6  # lengths of training, where waiting costs energy
_MOST = 2.0**53


@dataclass(frozen=True, eq=False)
class Merit:
    """What a number of iterations is worth to a planner.

    Attributes:
        planner: whose batteries, limits of time and policy hold.
        exchange_j: [N] joules of one exchange, on average.
        exchange_s: seconds of one exchange, on average.
        drift: κ, what an exchange fewer costs in terms of a round fewer.
        known: is κ from the constants of the scenario?
    """

    planner: StaticPlanner
    exchange_j: FloatArray
    exchange_s: float
    drift: float
    known: bool

    @classmethod
    def of(cls, planner: StaticPlanner, most: int) -> Merit:
        """Of the prices of a planner's exchanges, up to so many of them."""
        n = min(most, _PRICED)
        prices = planner.prices(planner.ground.ready(n), n)
        constants = planner.ground.constants
        known = constants is not None and constants.gradient_variance > 0
        drift = 1.0
        if constants is not None and known:
            drift = constants.divergence**2 / constants.gradient_variance
        mean_s = float(prices.seconds.mean())
        return cls(planner, prices.exchange_j.mean(axis=0), mean_s, drift, known)

    def rounds(self, n: int) -> IntArray:
        """[N] rounds of each device in all that n exchanges leave energy and time for."""
        planner, policy = self.planner, self.planner.ground.policy
        devices, limits = planner.world.devices, planner.limits
        round_s, trained = devices.round_latency_s, int(planner.ground.trains(n).sum())
        left_j = devices.energy_budget_j - n * self.exchange_j
        left_s = np.inf if limits.total_s is None else limits.total_s - n * self.exchange_s

        def within(train_s: float, rest_j: FloatArray | float = 0.0) -> IntArray:
            """The rounds of so many seconds of training, which cost so many joules at rest."""
            most = np.clip(np.floor((left_j - rest_j) / devices.round_energy_j), 0.0, _MOST)
            if limits.deadline_s is not None:
                each = np.floor(max(0.0, limits.deadline_s - self.exchange_s) / round_s)
                most = np.minimum(most, trained * each)
            whole = most.astype(np.int64)
            if policy.spends == "least":
                whole = np.minimum(whole, n * planner.least)
            if train_s == np.inf or not trained:
                return whole if trained else np.zeros_like(whole)
            train_s = max(0.0, train_s)
            if policy.fit is not None:
                return np.asarray(policy.fit(trained, whole, round_s, train_s))
            shares = trained * np.floor(train_s / trained / round_s)
            return np.asarray(np.minimum(whole, np.minimum(shares, _MOST).astype(np.int64)))

        if devices.idle_w is None:
            return within(left_s)
        return self._waited(n, left_j, left_s, within)

    def _waited(
        self,
        n: int,
        left_j: FloatArray,
        left_s: float,
        within: Callable[[float, FloatArray], IntArray],
    ) -> IntArray:
        """The most rounds, if everybody draws power for as long as the iterations take."""
        devices, limits = self.planner.world.devices, self.planner.limits
        idle_w = Waiting.at(devices).of(1.0)
        left_j = left_j - n * self.exchange_s * idle_w
        if (left_j < 0).any():
            return np.zeros(len(idle_w), np.int64)
        with np.errstate(divide="ignore"):
            most_s = min(left_s, float(np.min(np.where(idle_w > 0, left_j / idle_w, np.inf))))
        if limits.deadline_s is not None:
            most_s = min(most_s, n * max(0.0, limits.deadline_s - self.exchange_s))
        rest_s = n * self.exchange_s
        tried = [
            within(float(train_s), (rest_s + train_s) * idle_w)
            for train_s in np.linspace(0.0, most_s, _TRIED + 1)[1:]
        ]
        return max(tried, key=lambda rounds: int(rounds.sum()))

    def value(self, n: int) -> float:
        """1/Q + κ/n, where only exchanges count before which somebody can have trained."""
        rounds = self.rounds(n)
        if not rounds.any() or (rounds < n * self.planner.least).any():
            return np.inf
        return float(1 / rounds.mean() + self.drift / min(n, int(rounds.max())))

    def reason(self, n: int, most: int) -> str:
        """Why n of the ``most`` iterations that are paid for, in one line."""
        rounds, limits = self.rounds(n), self.planner.limits
        joules = float(n * self.exchange_j.sum() / self.planner.world.devices.energy_budget_j.sum())
        shares = [f"{100 * joules:.2g} % of the energy in all batteries"]
        if limits.total_s is not None:
            shares.append(f"{100 * n * self.exchange_s / limits.total_s:.2g} % of the total time")
        source = "by the constants of [bounds]" if self.known else "assumed: [bounds] would tell"
        worth = f"more of them would cost more rounds than they are worth (kappa {self.drift:.3g}, "
        why = "no more are paid for, or can be planned" if n == most else f"{worth}{source})"
        return (
            f'plan.iterations = "auto" is {n:,}: {rounds.mean() / n:.3g} rounds per iteration on '
            f"average, and exchanges take {' and '.join(shares)}; {why}"
        )


def least_of(most: int, value: Callable[[int], float]) -> int:
    """The n in 1..most with the least value, if there is one dip: a grid that is refined.

    >>> least_of(100_000, lambda n: n / 37 + 37 / n)
    37
    """
    grid = np.unique(np.rint(np.geomspace(1, max(1, most), _GRID)).astype(np.int64))
    known: dict[int, float] = {}
    while True:
        for n in grid.tolist():
            if n not in known:
                known[n] = value(n)
        best = min(known, key=lambda n: (known[n], n))
        tried = np.array(sorted(known))
        at = int(np.searchsorted(tried, best))
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
        grid = np.unique(np.linspace(low, high, _GRID // 3).astype(np.int64))
        if set(grid.tolist()) <= known.keys():
            return best
