"""The causal planner's rounds of the iterations to come: within time, and by the policy."""

from __future__ import annotations

__all__ = ["by_policy", "in_time"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.clock import TimeLeft
from joulemesh.planning.policy import allocate

if TYPE_CHECKING:
    from joulemesh.planning.causal import CausalPlanner

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def by_policy(planner: CausalPlanner, t: int, total: IntArray, cap: IntArray) -> IntArray:
    """Rounds [rows, N] of iteration t and those to come.

    Devices that cannot last to the end run the least each time until they leave.

    Args:
        planner: with who takes part.
        t: the iteration, from 0.
        total: [N] rounds in all that batteries pay for in time.
        cap: [rows, N].
    """
    lasting = planner.active & (total >= planner.least * (planner.iterations - t))
    rounds = np.zeros((len(cap), len(planner.active)), np.int64)
    rounds[:, planner.active] = planner.least
    if lasting.any():
        rounds[:, lasting] = allocate(
            planner.ground.policy,
            planner.iterations,
            total[lasting],
            cap[:, lasting],
            options=planner.options,
            start=t + 1,
        )
    return rounds


def in_time(
    planner: CausalPlanner, t: int, total: IntArray, ahead_s: FloatArray, time: TimeLeft
) -> tuple[IntArray, IntArray]:
    """Rounds in all [N] and caps [rows, N] for which there is time in the iterations to come.

    An exchange that is forecast to miss the deadline will be skipped, not cost a round.

    Args:
        planner: with who takes part.
        t: the iteration, from 0.
        total: [N] rounds in all that the batteries pay for.
        ahead_s: [rows] seconds of the exchanges.
        time: that is left.
    """
    policy, trains = planner.ground.policy, planner.ground.trains(planner.iterations)[t:, None]
    if planner.least == 0 and time.deadline_s is not None:
        ahead_s = np.where(ahead_s > time.deadline_s, 0.0, ahead_s)
    if policy.fit is None or not time.limited:
        return total, np.maximum(time.caps(ahead_s), planner.least) * trains
    # Iterations that train are given the cap of the tightest, so that they are alike.
    cap, rows = np.maximum(time.caps(ahead_s, shares=1), 0), max(1, int(trains.sum()))
    least = cap.min(axis=0, where=trains, initial=np.iinfo(np.int64).max)
    most = np.minimum(total, rows * np.minimum(least, total // rows + 1))
    most = np.where(planner.active, np.maximum(most, 0), 0)
    fitted = policy.fit(rows, most, planner.round_s, time.training_s(ahead_s))
    return np.where(total < 0, total, fitted), least * trains
