"""Each method's own learning rate: from one grid, at equal effort, on seeds that no result uses.

One learning rate for all favours the methods that it happens to suit. So every method is trained at
every rate of one grid, on the same few seeds, and takes the rate of the highest final accuracy of
the mean model; the comparison itself is made on other seeds.
"""

from __future__ import annotations

__all__ = ["TUNING_SEEDS", "Rates", "TunedRate", "rates_of", "tuning_seeds"]

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.scenario import Scenario

FloatArray = NDArray[np.float64]
Rates = bool | str | Sequence[float] | None

TUNING_SEEDS = 2
_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the scenario's own rate
_FURTHER = 500_000  # from the scenario's seed; other worlds' seeds are whole millions away


def rates_of(scenario: Scenario, wanted: Rates) -> tuple[float, ...]:
    """The grid of learning rates, ascending; empty for no tuning.

    Args:
        scenario: whose own rate is in the middle of the grid, if none is given.
        wanted: whether to tune; or the rates themselves, as numbers or in one text with commas.

    Raises:
        ScenarioError: something that is not a rate, or the same rate twice.

    >>> rates_of(Scenario.preset("default"), True)
    (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
    >>> rates_of(Scenario.preset("default"), "0.1, 0.05")
    (0.05, 0.1)
    """
    if wanted is None or wanted is False:
        return ()
    if wanted is True:
        return tuple(scenario.training.learning_rate * times for times in _MULTIPLES)
    pieces = wanted.split(",") if isinstance(wanted, str) else wanted
    try:
        rates = sorted(float(piece) for piece in pieces)
    except (TypeError, ValueError):
        rates = []
    if not rates or not all(0 < rate < math.inf for rate in rates) or len(set(rates)) < len(rates):
        raise ScenarioError(
            f"the grid of learning rates is {wanted!r}: give different numbers above 0, "
            'for instance "0.05,0.1,0.2"'
        )
    return tuple(rates)


def tuning_seeds(scenario: Scenario, count: int, used: Sequence[int]) -> tuple[int, ...]:
    """Seeds for choosing a learning rate, the same for all methods.

    Args:
        scenario: they are half a million away from its seed.
        count: how many.
        used: the seeds of the result, none of which is among them.

    >>> tuning_seeds(Scenario.preset("default"), 2, (0, 1, 500_000))
    (500001, 500002)
    """
    if count < 1:
        raise ScenarioError(f"tune_seeds = {count} is out of range: use 1 or more")
    first = scenario.seed + _FURTHER
    free = (seed for seed in range(first, first + count + len(used)) if seed not in set(used))
    return tuple(seed for _, seed in zip(range(count), free, strict=False))


@dataclass(frozen=True, eq=False)
class TunedRate:
    """How a method got its learning rate.

    Attributes:
        grid: the rates that were tried, ascending.
        seeds: on which.
        accuracy: float64 [rates, seeds]: final test accuracy of the mean model; NaN where training
            diverged.

    The smaller of two as good; one that diverges at any seed loses.

    >>> reached = np.array([[0.5, 0.7], [0.7, 0.5], [0.9, np.nan]])
    >>> TunedRate((0.1, 0.2, 0.4), (7, 8), reached).chosen
    0.1
    """

    grid: tuple[float, ...]
    seeds: tuple[int, ...]
    accuracy: FloatArray

    @property
    def _best(self) -> int:
        means = self.accuracy.mean(axis=1)
        return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))

    @property
    def chosen(self) -> float:
        """The rate of the highest mean accuracy; the smallest one if all of them diverged."""
        return self.grid[self._best]

    @property
    def notes(self) -> tuple[str, ...]:
        """The choice in words, and what casts doubt on it."""
        best, count = self._best, len(self.seeds)
        seeds = "1 seed" if count == 1 else f"{count} seeds"
        low, high = f"{self.grid[0]:g}", f"{self.grid[-1]:g}"
        span = f"{len(self.grid)} from {low} to {high}, tried on {seeds} that no result uses"
        said = f"learning rate {self.chosen:g}, the best of {span}"
        if np.isnan(self.accuracy[best]).any():
            return (f"diverged at every learning rate ({span}): give smaller ones",)
        if len(self.grid) > 1 and best in (0, len(self.grid) - 1):
            end = "smallest" if best == 0 else "largest"
            said += f"; it is the {end} of them, so that a better one may lie beyond"
        return (said,)

    def lines(self) -> Iterator[tuple[float, int, float | str, bool]]:
        """Rate, seed, accuracy ("" where it diverged), and whether the rate was chosen."""
        for rate, row in zip(self.grid, self.accuracy.tolist(), strict=True):
            for seed, value in zip(self.seeds, row, strict=True):
                yield rate, seed, "" if math.isnan(value) else value, rate == self.chosen
