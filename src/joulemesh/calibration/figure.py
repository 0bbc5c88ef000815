"""A measured figure with its interval and source."""

from __future__ import annotations

__all__ = ["WIDE", "Figure"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulemesh.results.statistics import estimate

WIDE = 0.10  # of the mean, to either side


@dataclass(frozen=True)
class Figure:
    """A mean over blocks, and where the mean of another calibration is expected.

    The interval is Student's, for the mean of as many blocks measured another time:
    mean ± t(0.975, n − 1) s √(2/n). It is √2 wider than that of the true mean, because the other
    calibration's mean is uncertain too.

    Attributes:
        mean: over the blocks; never below 0, and neither is the interval.
        low: lower end of the 95 % interval.
        high: upper end.
        blocks: how many there are; 0 for a figure that was declared.
        source: where it comes from, in words.
    """

    mean: float
    low: float
    high: float
    blocks: int
    source: str

    @classmethod
    def of(cls, values: Sequence[float], source: str) -> Figure:
        """From one value of each block.

        >>> figure = Figure.of([1.0, 2.0, 3.0], "measured")
        >>> figure.mean, round(figure.high - figure.mean, 4)  # 4.3027 · √(2/3)
        (2.0, 3.5131)
        """
        found = estimate(np.asarray(values, np.float64))
        half, mean = found.half * math.sqrt(2.0), max(0.0, found.mean)
        return cls(mean, max(0.0, found.mean - half), mean + half, found.seeds, source)

    @classmethod
    def declared(cls, value: float, source: str) -> Figure:
        """Without an interval.

        >>> Figure.declared(2.5, "declared 2.5 W").relative
        0.0
        """
        return cls(value, value, value, 0, source)

    @property
    def relative(self) -> float:
        """Half the width of the interval, as a share of the mean."""
        return (self.high - self.mean) / self.mean if self.mean else 0.0

    @property
    def wide(self) -> bool:
        """Is the interval wider than 10 % of the mean to either side?"""
        return not self.relative <= WIDE
