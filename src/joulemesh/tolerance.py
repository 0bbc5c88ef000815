"""Whether a budget pays: the one tolerance with which joules and seconds are compared.

A figure such as 0.1 J has no exact float64, and sums are rounded: three rounds of 0.1 J take a
little more than 0.3 J. A budget therefore pays for everything that exceeds it by no more than
`TOLERANCE`, as a share of itself. A plan may spend that much more than a battery holds, which is
far less than any meter tells apart, and nothing else rounds budgets up or down.
"""

from __future__ import annotations

__all__ = ["TOLERANCE", "affordable", "left_of", "within"]

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TOLERANCE = 1e-9
"""Of a budget: by how much its costs may exceed it and still be paid."""

_MOST = 2.0**53  # beyond, float64 does not count by ones


def affordable(budget: ArrayLike, unit: ArrayLike, *fixed: ArrayLike) -> IntArray:
    """The largest whole number of units that a budget pays for beside some fixed costs."""
    room = np.asarray(budget, np.float64) * (1.0 + TOLERANCE)
    for cost in fixed:
        room = room - np.asarray(cost, np.float64)
    with np.errstate(over="ignore"):  # units may be tiny, and budgets infinite
        units = np.floor(room / np.asarray(unit, np.float64))
    return np.asarray(np.minimum(np.maximum(units, -_MOST), _MOST).astype(np.int64))


def within(budget: ArrayLike, *costs: ArrayLike) -> NDArray[np.bool_]:
    """Does each budget pay for the sum of some costs?"""
    total = sum((np.asarray(cost, np.float64) for cost in costs[1:]), np.asarray(costs[0]))
    return np.asarray(total <= np.asarray(budget, np.float64) * (1.0 + TOLERANCE))


def left_of(held: FloatArray, *costs: ArrayLike) -> FloatArray:
    """What is left of some budgets; nothing, where the tolerance alone pays for the last of it."""
    left = held
    for cost in costs:
        left = left - np.asarray(cost, np.float64)
    return np.where((left < 0) & (left >= -TOLERANCE * held), 0.0, left)
