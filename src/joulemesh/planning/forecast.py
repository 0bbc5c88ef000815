"""What the causal planner expects of the exchanges to come."""

from __future__ import annotations

__all__ = ["Forecast"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.scheme import RoutesToTry, Scheme
from joulemesh.planning.pricing import Prices

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """What the planner expects while the same devices take part."""

    since: int
    scheme: Scheme
    routes: RoutesToTry
    prices: Prices  # of iterations since..n−1, at the fade quantile

    def reserve_j(self, iteration: int, iterations: int) -> FloatArray:
        """[N] joules of the exchanges after an iteration (counted from 0)."""
        if len(self.prices.energy_j) == 1:
            return np.asarray(self.prices.energy_j[0] * (iterations - iteration - 1))
        return np.asarray(self.prices.energy_j[iteration - self.since + 1 :].sum(axis=0))

    def now_j(self, iteration: int) -> FloatArray:
        """[N] joules that the exchange of an iteration is expected to cost."""
        row = 0 if len(self.prices.energy_j) == 1 else iteration - self.since
        return np.asarray(self.prices.energy_j[row])

    def now_s(self, iteration: int) -> float:
        """Seconds that the exchange of an iteration is expected to take."""
        row = 0 if len(self.prices.latency_s) == 1 else iteration - self.since
        return float(self.prices.latency_s[row])

    def later_s(self, iteration: int, iterations: int) -> float:
        """Seconds of the exchanges after an iteration."""
        return float(self.latency_s(iteration, iterations)[1:].sum())

    def latency_s(self, iteration: int, iterations: int) -> FloatArray:
        """[n − iteration] seconds of this exchange and of those to come."""
        left = iterations - iteration
        if len(self.prices.latency_s) == 1:
            return np.full(left, self.prices.latency_s[0])
        return self.prices.latency_s[iteration - self.since :]
