"""How a method in a comparison got its own learning rate."""

from __future__ import annotations

__all__ = ["TunedRate"]

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TunedRate:
    """How a method got its learning rate.

    Attributes:
        grid: the rates that were tried, ascending.
        seeds: on which.
        accuracy: float64 [rates, seeds]: final test accuracy of the mean model, or another score;
            NaN where training diverged.
        better: whether higher or lower figures are better.
        own: which value of a parameter of its own was chosen besides, in words; empty for none.

    The smaller of two as good; one that diverges at any seed loses.

    >>> reached = np.array([[0.5, 0.7], [0.7, 0.5], [0.9, np.nan]])
    >>> TunedRate((0.1, 0.2, 0.4), (7, 8), reached).chosen
    0.1
    """

    grid: tuple[float, ...]
    seeds: tuple[int, ...]
    accuracy: FloatArray
    better: Literal["higher", "lower"] = "higher"
    own: str = ""

    @property
    def _best(self) -> int:
        means = self.accuracy.mean(axis=1) * (1 if self.better == "higher" else -1)
        return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))

    @property
    def chosen(self) -> float:
        """The rate of the best mean score; the smallest one if all of them diverged."""
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
        return (said, self.own) if self.own else (said,)

    def lines(self) -> Iterator[tuple[float, int, float | str, bool]]:
        """Rate, seed, score ("" where it diverged), and whether the rate was chosen."""
        for rate, row in zip(self.grid, self.accuracy.tolist(), strict=True):
            for seed, value in zip(self.seeds, row, strict=True):
                yield rate, seed, "" if math.isnan(value) else value, rate == self.chosen
