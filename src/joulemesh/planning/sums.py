"""What a plan spends, in joules and seconds: sums that rounding never puts above a budget."""

from __future__ import annotations

__all__ = ["joules_spent", "seconds_taken"]

import math

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.clock import training_s
from joulemesh.planning.exact import two_product
from joulemesh.planning.timeline import Timeline

FloatArray = NDArray[np.float64]


def joules_spent(
    rounded_j: FloatArray, battery_j: FloatArray, timeline: Timeline, round_j: FloatArray
) -> FloatArray:
    """Joules that each device spends; where their rounded sum exceeds the battery, rounded once.

    Args:
        rounded_j: [N] as they add up with rounding.
        battery_j: [N].
        timeline: whose exact joules are no more than the batteries.
        round_j: [N] joules of one round.
    """
    spent_j = rounded_j.copy()
    repeat = len(timeline.rounds) if len(timeline.exchange_j) == 1 else 1
    for device in np.flatnonzero(spent_j > battery_j):
        training = two_product(timeline.rounds[:, device].sum(), round_j[device])
        each = [two_product(repeat, price) for price in timeline.exchange_j[:, device]]
        spent_j[device] = math.fsum(float(part) for pair in (training, *each) for part in pair)
    return spent_j


def seconds_taken(
    latency_s: FloatArray, total_s: float | None, timeline: Timeline, round_s: FloatArray
) -> float:
    """Seconds of all iterations; where their rounded sum exceeds the total, rounded once.

    Args:
        latency_s: [n] seconds of each iteration.
        total_s: seconds allowed to all of them, if they are limited.
        timeline: whose exact seconds are no more than that.
        round_s: [N] seconds of one round.
    """
    time_s = float(latency_s.sum())
    if total_s is None or time_s <= total_s:
        return time_s
    parts = (*training_s(timeline.rounds, round_s), timeline.exchange_s)
    return math.fsum(second for part in parts for second in part.tolist())
