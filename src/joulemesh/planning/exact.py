"""Sums and comparisons without rounding: whether a budget pays is decided exactly.

A float64 is a rational number. What is spent is a sum of such numbers and of whole multiples of
them, and it may not exceed the budget by anything, however little. Floating point decides wherever
it is certain to be right; where a sum is too close to the budget for that, the exact sum decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["exact_sum", "most_affordable", "remainder", "two_product", "two_sum", "within"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_EPSILON = float(np.finfo(np.float64).eps)
_SPLITTER = float(2**27 + 1)
_MOST = 2**53  # beyond, float64 does not count by ones
_BLOCK = 1 << 20  # entries that are added at a time


def two_sum(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The rounded sum and what rounding left out, so that both together are a + b (Knuth).

    >>> [float(part) for part in two_sum(1.0, 2.0**-60)] == [1.0, 2.0**-60]
    True
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    total = a + b
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)


def two_product(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The rounded product and what rounding left out (Dekker); below 1e200 and above 1e-200.

    >>> from fractions import Fraction
    >>> high, low = two_product(0.1, 3.0)
    >>> Fraction(float(high)) + Fraction(float(low)) == 3 * Fraction(0.1)
    True
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    product = np.asarray(a * b)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, np.asarray(rest)


def _halves(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two numbers of 26 bits whose products are exact."""
    scaled = _SPLITTER * value
    high = scaled - (scaled - value)
    return high, value - high


def exact_sum(rows: FloatArray, repeat: int = 1) -> tuple[FloatArray, FloatArray]:
    """What the rows add up to, and what that float64 sum leaves out.

    Args:
        rows: float64 [n, N], none negative.
        repeat: how often they are all added; only for a single row.

    Returns:
        The sum as NumPy rounds it, float64 [N], and a rest: the exact sum is at most both together,
        and less than that by no more than a part in 10²⁰.

    >>> total, rest = exact_sum(np.array([[0.1], [0.2]]))
    >>> float(total[0]), float(rest[0]) < 0
    (0.30000000000000004, True)
    """
    if len(rows) == 1:
        return two_product(rows[0], float(repeat))
    rounded = rows.sum(axis=0)
    total, rest, spread = (np.zeros_like(rounded) for _ in range(3))
    height = max(1, _BLOCK // max(1, rows.shape[1]))
    for first in range(0, len(rows), height):
        part = rows[first : first + height]
        while len(part) > 1:  # the upper half onto the lower one, until one row is left
            half = (len(part) + 1) // 2
            upper = part[half:]
            added, lost = two_sum(part[: len(upper)], upper)
            rest, spread = rest + lost.sum(axis=0), spread + np.abs(lost).sum(axis=0)
            part = np.concatenate([added, part[len(upper) : half]])
        total, lost = two_sum(total, part[0])
        rest, spread = rest + lost, spread + np.abs(lost)
    # What was lost is itself added with rounding: this is more than that can have left out.
    return rounded, (total - rounded) + rest + 4 * len(rows) * _EPSILON * spread


def remainder(held: FloatArray, owed: FloatArray, *spent: FloatArray) -> tuple[FloatArray, ...]:
    """What is left of ``held − owed`` after some payments.

    Args:
        held: float64 [N].
        owed: float64 [N]: what rounding has left out so far.
        spent: float64 [N] each, subtracted in this order.

    Returns:
        The rounded difference and what is then owed: the exact remainder is not less than the one
        minus the other.

    >>> left, owed = remainder(np.array([1.0]), np.array([0.0]), np.array([2.0**-60]))
    >>> float(left[0]), 2.0**-60 <= float(owed[0]) < 1.001 * 2.0**-60
    (1.0, True)
    """
    lost, spread = owed, np.abs(owed)
    for payment in spent:
        held, error = two_sum(held, -payment)
        lost, spread = lost - error, spread + np.abs(error)
    # What was lost is itself added with rounding: this is more than that can have left out.
    return held, lost + 4 * len(spent) * _EPSILON * spread


def most_affordable(budget: ArrayLike, unit: ArrayLike, *fixed: ArrayLike) -> IntArray:
    """The largest whole number of units that a budget pays for beside some fixed costs.

    It is the largest k for which Σ fixed + k · unit is at most the budget, in exact arithmetic and
    also when float64 adds k · unit to the first of the fixed costs, as the ledger does.

    Args:
        budget, unit, fixed: broadcast with each other; the units are positive.

    Returns:
        int64, within ±2⁵³; negative where the fixed costs alone exceed the budget.

    >>> most_affordable(10.0, 1.5, 4.0).tolist()
    4
    >>> most_affordable(0.012, 0.001, 0.006).tolist()  # though (0.012 - 0.006) / 0.001 < 6
    6
    >>> most_affordable(1.0, 2.0**-50, 1 - 10 * 2.0**-50).tolist()
    10
    """
    held, price, *costs = (np.asarray(figure, np.float64) for figure in (budget, unit, *fixed))
    room, lost, scale = held, np.zeros(()), np.abs(held)
    for cost in costs:
        room, error = two_sum(room, -cost)
        lost, scale = lost + error, scale + np.abs(cost)
    quotient = np.minimum(np.maximum((room + lost) / price, -_MOST), _MOST)
    count = np.floor(quotient)
    # Where the quotient is far enough from a whole number, its floor is beyond doubt.
    slack, doubt = (quotient - count) * price, (16 * (len(costs) + 2) * _EPSILON) * scale
    near = np.minimum(slack, price - slack) <= doubt
    # Elsewhere it is off by less than one: begin with one more, and give back what is too much.
    if not near.any():
        return np.asarray(count.astype(np.int64))
    count = np.where(near & (count >= -1) & (count < _MOST), count + 1, count)
    if any(figure.shape != count.shape for figure in (held, price, *costs)):
        held, price, *costs = np.broadcast_arrays(held, price, *costs)
    tried = np.flatnonzero(near & (count >= 0) & (count < _MOST))
    flat = count.reshape(-1)
    figures = [array.reshape(-1) for array in (held, price, *costs)]
    while tried.size:
        budgets, units, *others = (array[tried] for array in figures)
        over = _exceeds(budgets, units, flat[tried], others)
        tried = tried[over]
        flat[tried] -= 1
        tried = tried[flat[tried] >= 0]
    return np.asarray(flat.reshape(held.shape).astype(np.int64))


def within(budget: FloatArray, *costs: FloatArray) -> NDArray[np.bool_]:
    """Does each budget [N] pay for the sum of some costs [N], exactly?

    >>> within(np.array([0.3, 0.3]), np.array([0.1, 0.3]), np.array([0.2, 0.0])).tolist()
    [False, True]
    """
    held, *terms = np.broadcast_arrays(budget, *costs)
    return ~_exceeds(held, np.ones_like(held), np.zeros_like(held), terms)


def _exceeds(
    budget: FloatArray, unit: FloatArray, count: FloatArray, fixed: Sequence[FloatArray]
) -> NDArray[np.bool_]:
    """Do the units and the fixed costs exceed the budget? All [M]."""
    bought, rest = two_product(count, unit)
    rounded = bought + fixed[0] if fixed else bought
    left, scale = budget - bought, np.abs(budget) + np.abs(bought)
    for cost in fixed:
        left, scale = left - cost, scale + np.abs(cost)
    over = left < 0
    close = np.abs(left) <= 4 * (len(fixed) + 2) * _EPSILON * scale
    if close.any():
        terms = (budget, -bought, -rest, *(-cost for cost in fixed))
        distinct, where = np.unique(
            np.stack([term[close] for term in terms], axis=1), axis=0, return_inverse=True
        )
        signs = np.array([math.fsum(row) < 0 for row in distinct.tolist()])  # rounded only once
        over[close] = signs[where.reshape(-1)]
    return np.asarray(over | (rounded > budget))
