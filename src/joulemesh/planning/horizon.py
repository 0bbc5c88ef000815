"""How many iterations: the longest that every battery pays for, or the best of a bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.budget import rounds_in_all, rounds_total
from joulemesh.planning.exact import two_product
from joulemesh.planning.policy import policy_of
from joulemesh.scenario import PlanOptions

__all__ = ["best_iterations", "longest", "longest_in_time", "zeta_limit"]

FloatArray = NDArray[np.float64]

_CANDIDATES = 64
_MOST = 2**53


def zeta_limit(options: PlanOptions) -> int | None:
    """Largest n with n − 1 < ζ where the policy uses ζ and ζ is given; None without a limit.

    >>> zeta_limit(PlanOptions(zeta=12.5, rounds="theorem4")), zeta_limit(PlanOptions())
    (13, None)
    >>> zeta_limit(PlanOptions(zeta=3.0, rounds="backfill"))
    """
    if options.zeta == "auto" or not policy_of(options).uses_zeta:
        return None
    return int(np.ceil(options.zeta))


def longest(
    battery_j: FloatArray, exchange_j: FloatArray, round_j: FloatArray, least: int = 1
) -> int:
    """Largest n for which every device affords ``least`` rounds and its exchange each iteration.

    The closed form of Algorithm 3's loop (notes: longest-plan): min over devices of
    ⌊δ_E / (E_cp + E_cm)⌋.

    >>> longest(np.array([300.0, 400.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    150
    """
    with np.errstate(divide="ignore"):  # without a round, some exchanges cost a device nothing
        ratio = float(np.min(battery_j / (least * round_j + exchange_j)))
    n = int(min(ratio, _MOST)) + 1  # the ratio is rounded; the exact sum decides
    while n and (rounds_total(battery_j, *_times(n, exchange_j, round_j)) < n * least).any():
        n -= 1
    return n


def longest_in_time(total_s: float, exchange_s: float, round_s: float, least: int = 1) -> int:
    """Largest n of iterations with ``least`` rounds and an exchange that take no more than a total.

    Args:
        total_s: seconds of the whole training.
        exchange_s: seconds of one exchange.
        round_s: seconds of a round on the slowest device.
        least: rounds per iteration.

    >>> longest_in_time(0.3, 0.0, 0.1)  # in float64, three times 0.1 is more than 0.3
    2
    """
    one_s = least * round_s + exchange_s
    n = int(min(total_s / one_s if one_s else _MOST, _MOST - 1)) + 1  # the exact sum decides
    each, slowest = np.array([exchange_s]), np.array([round_s])
    while n and rounds_in_all(total_s, each, slowest, n)[0] < n * least:
        n -= 1
    return n


def _times(
    n: int, exchange_j: FloatArray, round_j: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """n exchanges, a round, and what rounding leaves out of the former."""
    total_j, rest_j = two_product(float(n), exchange_j)
    return total_j, round_j, rest_j


def best_iterations(most: int, value: Callable[[int], float]) -> int:
    """The n in 1..most with the least value: a coarse scan, then every n around its best.

    Exact when most ≤ 64, and whenever the value has no dip narrower than the scan's steps.

    >>> best_iterations(1000, lambda n: abs(n - 37.0))
    37
    """
    grid = np.unique(np.rint(np.geomspace(1, most, min(most, _CANDIDATES))).astype(np.int64))
    if most <= _CANDIDATES:
        grid = np.arange(1, most + 1)
    known = {int(n): value(int(n)) for n in grid}
    best = min(known, key=known.__getitem__)
    at = int(np.searchsorted(grid, best))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    for n in np.unique(np.linspace(low, high, _CANDIDATES).astype(np.int64)).tolist():
        known.setdefault(n, value(n))
    best = min(known, key=known.__getitem__)
    for n in range(max(1, best - _CANDIDATES // 2), min(most, best + _CANDIDATES // 2) + 1):
        known.setdefault(n, value(n))
    return min(known, key=known.__getitem__)
