"""Rounds spread evenly over the iterations, where an iteration may have none.

A device that its battery pays K = q·n + k rounds runs q of them in every iteration and one more in
k iterations; where q is 0, it relays and averages without training in the others. Which k
iterations these are is the same for all devices: the first k in one order of the iterations, every
beginning of which is itself evenly spread (multiples of the golden ratio). So the device with
fewer extra rounds trains them only where the others do, and iterations are as short as they can be
(notes: spread-rounds).
"""

from __future__ import annotations

__all__ = ["Profile", "fit_time", "level_of", "ranks", "spread"]

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.planning.policy import Policy, count_iterations
from joulemesh.planning.waterfill import Budget, read_budget
from joulemesh.registries import POLICIES

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / φ, odd: its multiples are all different
_STEPS = 80  # halvings of the level: far more than tell two numbers of rounds apart
_MOST_FILLED = 1_000_000  # device looks, in filling up what the level leaves


def ranks(iterations: int) -> IntArray:
    """Rank of each iteration in the order in which extra rounds are given, int64 [n].

    The last iteration comes first. The order visits multiples of the golden ratio modulo 1, in
    whole numbers modulo 2⁶⁴, so that every beginning of it is evenly spread.

    >>> ranks(5).tolist()
    [3, 1, 4, 2, 0]
    """
    visited = np.arange(iterations, dtype=np.uint64) * _GOLDEN  # wraps round
    rank = np.empty(iterations, np.int64)
    rank[::-1][np.argsort(np.argsort(visited))] = np.arange(iterations)
    return rank


def spread(
    iterations: int, total: ArrayLike, cap: ArrayLike, *, start: int = 1
) -> NDArray[np.int64]:
    """Rounds as even as whole numbers and caps allow, zeros included, extra ones at the same time.

    Args:
        iterations: n of the whole plan.
        total: rounds that each device can afford from ``start`` on, scalar or [N].
        cap: most rounds per iteration, scalar, [N] or [n−start+1, N].
        start: number of the first iteration still to come; what was planned before stays so.

    Returns:
        Rounds [n−start+1] or [n−start+1, N]; each device's sum is min(⌊total⌋, Σ cap), and its
        rounds in two iterations differ by one at most, unless a cap is lower.

    >>> spread(5, [2, 7], 4).T
    array([[0, 1, 0, 0, 1],
           [1, 2, 1, 1, 2]])
    """
    count = count_iterations(iterations, start)
    budget = read_budget(count, total, cap, start=start, least=0)
    budget.require_total(0, "the exchanges alone overdraw the battery")
    goal, caps = _integers(budget)
    rank = np.argsort(np.argsort(ranks(iterations)[start - 1 :]))
    each, extra = np.divmod(goal, count)
    rounds = each + (rank[:, None] < extra)
    for device in np.flatnonzero((rounds > caps).any(axis=0)):
        rounds[:, device] = _under(caps[:, device], int(goal[device]), rank)
    return budget.shaped(rounds)


def _integers(budget: Budget) -> tuple[IntArray, IntArray]:
    """min(⌊total⌋, Σ cap) [N], and caps [1 or n, N]."""
    total, cap = (np.floor(np.minimum(a, 2.0**53)) for a in (budget.total, budget.cap))
    goal = np.minimum(total, cap.sum(axis=0) * (budget.count // len(cap)))
    budget.require_countable(goal, "lower budget.energy_j or the time of [budget]")
    return goal.astype(np.int64), np.minimum(cap, goal).astype(np.int64)


def _under(cap: IntArray, goal: int, rank: IntArray) -> IntArray:
    """One device's rounds [n] where every iteration has a cap of its own; they sum to the goal."""
    low, high = 0, int(cap.max())
    while low < high:  # the most that is had in every iteration whose cap allows it
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(cap, middle).sum() <= goal else (low, middle - 1)
    rounds = np.minimum(cap, low)
    open_ = np.flatnonzero(cap > low)
    extra = open_[np.argsort(rank[open_])][: goal - int(rounds.sum())]
    rounds[extra] += 1
    return np.asarray(rounds)


# Under a total time ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Profile:
    """How long the training of each iteration is, if devices' rounds are spread.

    Attributes:
        until: int64 [m]: the first ranks, up to these, have a length; ascending to n.
        seconds: float64 [m]: descending.

    >>> profile = Profile.of(np.array([2, 3]), 4, np.array([5.0, 1.0]))
    >>> profile.until.tolist(), profile.seconds.tolist(), profile.total_s
    ([2, 3, 4], [5.0, 1.0, 0.0], 11.0)
    """

    until: IntArray
    seconds: FloatArray

    @classmethod
    def of(cls, rounds: IntArray, iterations: int, round_s: FloatArray) -> Profile:
        """Of devices with so many rounds in all [N], over n iterations."""
        each, extra = np.divmod(rounds, iterations)
        base = float((each * round_s).max(initial=0.0))
        longer = np.where(extra > 0, (each + 1) * round_s, 0.0)
        who = np.flatnonzero(longer > base)
        who = who[np.argsort(extra[who], kind="stable")]
        until = np.append(extra[who], iterations)
        length = np.append(np.maximum.accumulate(longer[who][::-1])[::-1], base)
        last = np.append(until[1:] != until[:-1], True)  # several end at the same rank
        first = np.append(True, last[:-1])
        return cls(until[last], length[first])

    @property
    def total_s(self) -> float:
        """Seconds of all iterations together."""
        return math.fsum(np.diff(self.until, prepend=0) * self.seconds)

    def at(self, rank: IntArray) -> FloatArray:
        """Seconds of the iterations with some ranks."""
        return self.seconds[np.searchsorted(self.until, rank, side="right")]

    def free(self, iterations: int, round_s: FloatArray) -> IntArray:
        """[N] the most rounds that each device can run without making any iteration longer."""
        shortest = float(self.seconds[-1])
        each = np.floor(shortest / round_s)
        each += (each + 1) * round_s <= shortest  # the quotient is rounded
        each -= each * round_s > shortest
        # Iterations, by rank, that are long enough for one more round.
        where = np.searchsorted(-self.seconds, -(each + 1) * round_s, side="right")
        extra = np.append(0, self.until)[where]
        return np.asarray(each.astype(np.int64) * iterations + extra)


def fit_time(iterations: int, most: IntArray, round_s: FloatArray, time_s: float) -> IntArray:
    """Rounds of each device in all whose iterations, spread, train no longer than a time.

    What `level_of` leaves is filled up by rounds that cost no time, and then by those that cost
    least.

    Args:
        iterations: n.
        most: int64 [N] rounds that each device could run.
        round_s: [N] seconds of one round.
        time_s: seconds of training of all iterations together.

    Returns:
        int64 [N], at most ``most``. One more round of any device that has fewer takes too long.

    >>> fit_time(4, np.array([2, 9]), np.array([5.0, 1.0]), 9.0).tolist()
    [1, 6]
    """
    rounds = level_of(iterations, most, round_s, time_s)
    if time_s < 0 or (rounds == most).all():
        return rounds
    return _filled(rounds, iterations, most, round_s, time_s)


def level_of(iterations: int, most: IntArray, round_s: FloatArray, time_s: float) -> IntArray:
    """Rounds for the same time of training on all devices, or for as much as they can use.

    They are min(most, ⌊S / round_s⌋) for the largest level S of seconds that fits: nobody is cut
    who trains for less time than another.

    Args:
        iterations: n.
        most: int64 [N] rounds that each device could run.
        round_s: [N] seconds of one round.
        time_s: seconds of training of all iterations together.

    >>> level_of(4, np.array([2, 9]), np.array([5.0, 1.0]), 9.0).tolist()
    [1, 6]
    """

    def rounds(seconds: float) -> IntArray:
        return np.asarray(np.minimum(most, np.floor(seconds / round_s)).astype(np.int64))

    def fits(tried: IntArray) -> bool:
        return Profile.of(tried, iterations, round_s).total_s <= time_s

    if time_s < 0 or fits(most):
        return most if time_s >= 0 else np.zeros_like(most)
    low, high = 0.0, float((most * round_s).max())
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(rounds(middle)) else (low, middle)
        if (rounds(high) - rounds(low)).sum() <= 1:
            break
    return rounds(low)


def _filled(
    rounds: IntArray, iterations: int, most: IntArray, round_s: FloatArray, time_s: float
) -> IntArray:
    """Rounds with those added that still fit; of these the ones that take least time first."""
    for _ in range(max(_MOST_FILLED // len(most), 8)):
        profile = Profile.of(rounds, iterations, round_s)
        rounds = np.maximum(rounds, np.minimum(most, profile.free(iterations, round_s)))
        each, extra = np.divmod(rounds, iterations)
        longer_s = (each + 1) * round_s - profile.at(extra)
        longer_s = np.where(rounds < most, longer_s, np.inf)
        device = int(np.argmin(longer_s))
        tried = rounds.copy()
        tried[device] += 1
        if not np.isfinite(longer_s[device]):
            break
        if Profile.of(tried, iterations, round_s).total_s > time_s:
            break
        rounds = tried
    return rounds


POLICIES.register(
    Policy(
        "spread",
        "as even as whole numbers allow: a device may relay and average without training",
        lambda start, n, total, cap, options: spread(n, total, cap, start=start),
        least=lambda options: 0,
        zeros=True,
        fit=fit_time,
    )
)
