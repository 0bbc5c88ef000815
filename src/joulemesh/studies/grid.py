"""When methods are evaluated: all of them at the same joules and at the same seconds.

A curve rises early and fast, and methods differ in what an iteration costs by orders of magnitude:
evaluated every so many iterations, one of them is seen for the first time when it has long passed
what another is compared by. So there is one grid of joules and one of seconds, the same for every
method: by a ratio from the first iteration on, evenly where even steps are finer than that ratio,
up to the end of the adaptive plan, and by the ratio again beyond it. They depend on the scenario
alone, so that another method in a comparison changes no other's evaluations.
"""

from __future__ import annotations

__all__ = ["RATIO", "evaluations", "grid"]

import math

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import InfeasibleError
from joulemesh.methods import Setting
from joulemesh.methods.base import Ledger

FloatArray = NDArray[np.float64]

RATIO = 2 ** (1 / 8)  # between neighbours of a grid: 9 %
_EVEN_FROM = math.ceil(1 / (RATIO - 1))  # steps, from which one step is less than the ratio


def grid(step: float, steps: int, low: float, high: float) -> FloatArray:
    """The points of a grid.

    Args:
        step: between evenly spaced points.
        steps: how many there are from 0 to the end of the even part.
        low: the smallest figure of interest, above 0.
        high: the largest.

    Returns:
        Ascending points; the first is at most ``low`` (or ``high``, where that is less), and none
        is above ``high``.

    >>> grid(1.0, 14, 8.0, 16.0).round(2).tolist()
    [7.78, 8.49, 9.25, 10.09, 11.0, 12.0, 13.0, 14.0, 15.27]
    """
    start, end = step * min(_EVEN_FROM, steps), step * steps
    even = step * np.arange(min(_EVEN_FROM, steps), steps + 1)
    least = min(low, high)
    below = start * RATIO ** -np.arange(1.0, _ratios(start / least) + 1)[::-1]
    above = end * RATIO ** np.arange(1.0, _ratios(high / end) + 1)
    points = np.concatenate([below, even, above])
    return points[points <= high]


def _ratios(times: float) -> int:
    """How many ratios it takes to get so many times higher."""
    return max(0, math.ceil(math.log(times) / math.log(RATIO)))


def evaluations(setting: Setting, ledger: Ledger) -> tuple[int, ...]:
    """The iterations after which a method is evaluated.

    Args:
        setting: the terms of the comparison. Its plan sets the scale of the grids: their even
            steps are what ``training.eval_every`` iterations of the plan cost on average.
        ledger: what the method's iterations cost, or, where that depends on what is learned, what
            they are expected to.

    Returns:
        Iterations, ascending, from 1: those in which the joules or the seconds spent so far reach
        a point of their grid, and the last one. At most about two for every evaluation of the
        plan, and 16 for every doubling of the cost.

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods import build
    >>> setting = Setting(Scenario.preset("adaptive"))
    >>> evaluations(setting, build("fixed:3", setting).reserve)[:14]
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    """
    n, every = ledger.iterations, setting.scenario.training.eval_every
    try:
        plan = setting.reference
        count, joules, seconds = plan.iterations, float(plan.spent_j.sum()), setting.clock_s
    except InfeasibleError:  # no plan to take the scale from: ratios of 1 J and 1 s
        count, joules, seconds = every, 1.0, 1.0
    chosen = {n}
    for total, each in ((joules, ledger.energy_j.sum(axis=1)), (seconds, ledger.latency_s)):
        so_far = np.cumsum(each, dtype=np.float64)
        if not 0 < so_far[-1] < math.inf or total <= 0:  # what costs nothing has no grid
            continue
        low = float(so_far[so_far > 0][0])
        points = grid(total * every / count, max(1, count // every), low, float(so_far[-1]))
        chosen.update((np.searchsorted(so_far, points) + 1).tolist())
    return tuple(sorted(chosen))
