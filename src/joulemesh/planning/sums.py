"""What a plan spends, in joules and seconds: sums that rounding never puts above a budget."""

from __future__ import annotations

__all__ = ["joules_exactly", "seconds_taken"]

import math

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.clock import training_s
from joulemesh.planning.exact import two_product
from joulemesh.planning.timeline import Timeline
from joulemesh.world.devices import DeviceArrays

FloatArray = NDArray[np.float64]


def joules_exactly(device: int, timeline: Timeline, devices: DeviceArrays) -> float:
    """Joules that a device spends, at rest included, rounded only once.

    Args:
        device: its number.
        timeline: of the whole plan.
        devices: prices of a round, and power at rest.
    """
    rounds = timeline.rounds[:, device].sum()
    repeat = len(timeline.rounds) if len(timeline.exchange_j) == 1 else 1
    parts = [two_product(rounds, devices.round_energy_j[device])]
    parts += [two_product(repeat, price) for price in timeline.exchange_j[:, device]]
    if devices.idle_w is not None:
        if timeline.awake_s is not None:
            rest = [timeline.awake_s[:, device]]
        else:
            seconds = (*training_s(timeline.rounds, devices.round_latency_s), timeline.exchange_s)
            rest = [part[timeline.active[:, device]] for part in seconds]
        parts += [two_product(devices.idle_w[device], part) for part in rest]
    return math.fsum(float(value) for pair in parts for part in pair for value in np.ravel(part))


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
