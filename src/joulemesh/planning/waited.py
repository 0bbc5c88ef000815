"""The causal planner's rounds where waiting costs energy: limits on the time to come are tried."""

from __future__ import annotations

__all__ = ["rounds_and_rest", "waited_for"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import InfeasibleError
from joulemesh.planning.ahead import by_policy, in_time
from joulemesh.planning.clock import keeps_total
from joulemesh.planning.waiting import Purse, Tried, least_s, longest_s, most_rounds

if TYPE_CHECKING:
    from joulemesh.planning.causal import CausalPlanner

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FEW_TRIED = 1_000_000  # entries of a plan of which few limits are tried: every iteration does so
_HALVINGS = 40


def rounds_and_rest(
    planner: CausalPlanner, t: int, exchange_j: FloatArray, ahead_s: FloatArray
) -> tuple[IntArray, IntArray]:
    """Rounds [N] of an iteration and caps [rows, N] of those to come, with energy to wait for them.

    Args:
        planner: with what is left, and who takes part.
        t: the iteration, from 0.
        exchange_j: [N] joules of its exchange and of those to come.
        ahead_s: [rows] their seconds.
    """
    rows, least = len(ahead_s), planner.least
    low_s = least_s(ahead_s, planner.round_s[planner.active], rows, least)
    coming_j = planner.coming_j(t)
    held_j = planner.battery if coming_j is None else planner.battery + coming_j
    purse = Purse(held_j, exchange_j, planner.owed, planner.round_j, planner.waiting)
    lasting = planner.active & (purse.total(low_s) >= least * rows)
    high_s = low_s
    if lasting.any():
        high_s = purse.among(lasting).longest_s(planner.time.limits, rows, least)

    def allot(limit_s: float, keep: bool) -> Tried | None:
        total = purse.total(limit_s)
        if not lasting.any() or (total[lasting] < least * rows).any():
            return None
        time = planner.time.within(limit_s) if keep else planner.time
        try:
            total, cap = in_time(planner, t, total, ahead_s, time)
            rounds = by_policy(planner, t, total, cap)
        except InfeasibleError:
            return None
        kept = keeps_total(limit_s, rounds, planner.round_s, ahead_s)
        return Tried(limit_s, rounds, cap, total) if kept else None

    found = most_rounds(
        low_s,
        high_s,
        allot,
        lambda one: longest_s(one.rounds, planner.round_s, ahead_s),
        _FEW_TRIED,
        planner.hint_s,
    )
    # Caps are those of time itself, not of a limit that was only tried.
    _, cap = in_time(planner, t, purse.total(low_s), ahead_s, planner.time)
    if found is not None:
        # What is now decided takes its part of the time; the rest is near what will be best then.
        taken_s = float((found.rounds[0] * planner.round_s).max()) + float(ahead_s[0])
        planner.hint_s = max(0.0, found.total_s - taken_s)
        return found.rounds[0], np.maximum(cap, found.rounds.max(axis=0))
    planner.hint_s = None
    # The batteries do not last: the least, for as long as they do.
    return np.where(planner.active, least, 0), cap


def waited_for(
    planner: CausalPlanner, rounds: IntArray, price_j: FloatArray, now_s: float
) -> IntArray:
    """The rounds [N] of an iteration without those for which some battery cannot wait.

    Args:
        planner: with what is left, and who takes part.
        rounds: [N].
        price_j: [N] joules of the exchange.
        now_s: its seconds.
    """

    def shortened(limit_s: float) -> IntArray:
        fitting = np.floor(limit_s / planner.round_s).astype(np.int64)
        return np.minimum(rounds, np.maximum(fitting, planner.least))

    def paid(tried: IntArray) -> bool:
        waits_j = planner.waiting.of_iteration(tried, now_s)
        return bool((planner.affords(price_j, *waits_j) >= tried)[planner.active].all())

    if paid(rounds):
        return rounds
    low, high = 0.0, float((rounds * planner.round_s).max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if paid(shortened(middle)) else (low, middle)
    return shortened(low)
