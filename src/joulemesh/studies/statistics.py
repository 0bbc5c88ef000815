"""Means over few seeds with honest intervals, and when a curve first reaches a target."""

from __future__ import annotations

__all__ = ["Estimate", "estimate", "paired", "reached_at"]

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: of the seeds; NaN if there are none.
        half: half the width of its 95 % interval; NaN for fewer than two seeds.
        seeds: how many there are.
    """

    mean: float
    half: float
    seeds: int


def estimate(values: NDArray[Any]) -> Estimate:
    """Mean and 95 % interval by Student's t: mean ± t(0.975, n − 1) s/√n.

    Args:
        values: one figure per seed; NaN where a seed has none (it is left out).

    Returns:
        The estimate.

    >>> estimate(np.array([1.0, 2.0, 3.0])).mean
    2.0
    >>> round(estimate(np.array([1.0, 2.0, 3.0])).half, 4)  # 4.3027 · 1/√3
    2.4841
    """
    kept = np.asarray(values, np.float64)
    kept = kept[np.isfinite(kept)]
    count = len(kept)
    if count < 2:
        return Estimate(float(kept[0]) if count else math.nan, math.nan, count)
    quantile = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return Estimate(
        float(kept.mean()), quantile * float(kept.std(ddof=1)) / math.sqrt(count), count
    )


def paired(values: NDArray[Any], rival: NDArray[Any]) -> Estimate:
    """Mean difference ``values − rival``, seed by seed, over the seeds that both have.

    What a seed makes easy or hard for both methods cancels.

    >>> paired(np.array([0.9, 0.8, np.nan]), np.array([0.8, 0.7, 0.6])).seeds
    2
    """
    return estimate(np.asarray(values, np.float64) - np.asarray(rival, np.float64))


def reached_at(accuracy: NDArray[Any], cost: NDArray[Any], target: float) -> NDArray[np.float64]:
    """What had been spent at the first evaluation that reaches a target, for each seed.

    Args:
        accuracy: [evaluations, seeds].
        cost: [evaluations, seeds], joules or seconds so far.
        target: an accuracy.

    Returns:
        [seeds]; NaN for seeds that never reach it.

    >>> reached_at(np.array([[0.5, 0.5], [0.9, 0.6]]), np.array([[1, 1], [2, 2]]), 0.8).tolist()
    [2.0, nan]
    """
    there = np.asarray(accuracy) >= target
    first = np.argmax(there, axis=0)
    spent = np.asarray(cost, np.float64)[first, np.arange(there.shape[1])]
    return np.where(there.any(axis=0), spent, np.nan)
