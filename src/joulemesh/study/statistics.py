"""Means over few seeds with honest intervals, and when a curve first reaches a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

CONFIDENCE = 0.95
_NO_SPREAD = 1e-12  # of the largest difference, which floating point may add
_ROUNDING = 1e-9  # of an iteration, which floating point may add to a whole number of them


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float  # of the seeds; NaN if there are none
    half: float  # half the width of its 95 % interval; NaN for fewer than two seeds
    seeds: int  # how many there are


def estimate(values: NDArray[Any]) -> Estimate:
    """Mean and 95 % interval by Student's t: mean ± t(0.975, n − 1) s/√n."""
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
    """Mean difference ``values − rival``, seed by seed, over the seeds that both have."""
    # What a seed makes easy or hard for both methods cancels.
    return estimate(np.asarray(values, np.float64) - np.asarray(rival, np.float64))


def t_test(differences: NDArray[Any]) -> float:
    """Two-sided p-value of Student's t-test that a mean difference is 0."""
    kept = np.asarray(differences, np.float64)
    kept = kept[np.isfinite(kept)]
    count = len(kept)
    spread = float(kept.std(ddof=1)) if count > 1 else 0.0
    if spread <= _NO_SPREAD * float(np.abs(kept).max(initial=0.0)) or spread == 0.0:
        return math.nan
    t = abs(float(kept.mean())) * math.sqrt(count) / spread
    return 2 * float(special.stdtr(count - 1, -t))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests: any false finding stays below the level."""
    # The k-th smallest of m p-values is multiplied by m − k + 1, and is not less than those before.
    order = sorted((p, k) for k, p in enumerate(p_values) if not math.isnan(p))
    corrected, worst = [math.nan] * len(p_values), 0.0
    for rank, (p, k) in enumerate(order):
        worst = max(worst, min(1.0, p * (len(order) - rank)))
        corrected[k] = worst
    return corrected


class Reached(NamedTuple):
    """What it took to reach a target, for each seed; NaN for seeds that never do."""

    value: NDArray[np.float64]  # [seeds], the best guess
    low: NDArray[np.float64]  # [seeds], it is not less than this,
    high: NDArray[np.float64]  # [seeds], and not more than this

    @property
    def error(self) -> NDArray[np.float64]:
        """How far the true figure can be from ``value``: [seeds]."""
        return np.maximum(self.value - self.low, self.high - self.value)


def reached_at(
    iteration: NDArray[Any],
    curve: NDArray[Any],
    cost: NDArray[Any],
    target: float,
    better: Literal["higher", "lower"] = "higher",
) -> Reached:
    """What has been spent when a curve first reaches a target, for each seed."""
    # A model exists at the end of an iteration, so the answer is what had been spent at the end of
    # the first iteration whose model is at the target or beyond it, whether or not a later one
    # falls behind again. Between the last evaluation before that and the first that is there, curve
    # and cost are taken to be straight lines.
    # The bracket says what the iterations that were not evaluated leave open. Its upper end is the
    # first evaluation at the target. One of those iterations may have been there before: the lower
    # end is the beginning of the first gap between evaluations in which the curve may have reached
    # the target. That is the gap before the upper end, or an earlier one at whose ends the curve is
    # no further below the target than the most that it ever falls from one evaluation to the next.
    # A single spike that is higher than that is not foreseen. Where no gap is in question the
    # answer is exact.
    rising, aim = np.asarray(curve), target
    if better == "lower":
        rising, aim = -rising, -target
    each = [
        _crossing(np.asarray(iteration), one, spent, aim)
        for one, spent in zip(rising.T, np.asarray(cost, np.float64).T, strict=True)
    ]
    return Reached(*np.array(each, np.float64).reshape(-1, 3).T)


def _crossing(
    done: NDArray[Any], curve: NDArray[Any], spent: NDArray[Any], target: float
) -> tuple[float, float, float]:
    """Value, low and high of one seed's curve."""
    there = np.flatnonzero(curve >= target)
    if not len(there):
        return math.nan, math.nan, math.nan
    k = int(there[0])
    iterations, costs = np.concatenate([[0], done]), np.concatenate([[0.0], spent])
    between = np.diff(iterations[: k + 2])
    fall = float(np.max(curve[:-1] - curve[1:], initial=0.0))
    near = np.concatenate([[False], curve[:k] >= target - fall])  # at the beginning of each gap
    near[:-1] |= near[1:]
    near[-1] = True
    gaps = np.flatnonzero(near & (between > 1))
    high = float(spent[k])
    low = float(costs[gaps[0]]) if len(gaps) else high
    if k == 0 or between[-1] == 1:
        return high, low, high
    share = float((target - curve[k - 1]) / (curve[k] - curve[k - 1]))
    whole = max(1, math.ceil(share * between[-1] - _ROUNDING))  # iterations of the gap
    return min(float(costs[k] + whole / between[-1] * (high - costs[k])), high), low, high


def band(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and half-width of its 95 % interval at every evaluation: [E] each, 0 for one seed."""
    found = [estimate(row) for row in values]
    half = np.array([one.half for one in found])
    return np.array([one.mean for one in found]), np.nan_to_num(half)
