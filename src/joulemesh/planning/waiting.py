"""The energy of waiting: what devices draw at rest, for as long as the slowest takes.

A device draws ``devices.idle_w`` during the whole of every iteration in which it takes part:
while it trains, sends, and waits for the slowest. So a battery pays for the seconds of all
iterations, and every device's rounds cost all others the joules of waiting for them. How long the
iterations may be is therefore a choice: with a limit T on their sum, a battery B_i pays for
⌊(B_i − exchanges − idle_w·T) / joules of a round⌋ rounds. A larger T leaves more time to train and
less energy; limits are tried, and the one is kept that gives most rounds.
"""

from __future__ import annotations

__all__ = ["Purse", "Tried", "Waiting", "affordable_s", "least_s", "longest_s", "most_rounds"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.planning.clock import TimeLimits, training_s
from joulemesh.planning.exact import exact_sum, most_affordable, two_product
from joulemesh.planning.timeline import Timeline
from joulemesh.world.devices import DeviceArrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_ROUNDING = 1 + 2.0**-48  # more than rounding adds to a sum of seconds
_ADDING = 2.0**-51  # more than rounding takes from a sum for each of its terms
_GRID, _FINE, _HALVINGS, _POLISHED = 13, 7, 24, 4
_NEAR = (0.95, 1.0, 1.05)
_LARGE = 200_000  # entries of a plan, beyond which fewer limits are tried


@dataclass(frozen=True, eq=False)
class Waiting:
    """What some devices draw at rest.

    Attributes:
        idle_w: float64 [N]; None if it is not counted.
        round_s: float64 [N]: seconds of one round.

    >>> rest = Waiting(np.array([2.0, 0.5]), np.array([1.0, 3.0]))
    >>> sum(rest.of(4.0)).tolist()
    [8.0, 2.0]
    >>> sum(rest.of_iteration(np.array([3, 2]), 1.0)).tolist()  # 6 s of training, 1 s of exchange
    [14.0, 3.5]
    """

    idle_w: FloatArray | None
    round_s: FloatArray

    @classmethod
    def at(cls, devices: DeviceArrays) -> Waiting:
        """Of all devices."""
        return cls(devices.idle_w, devices.round_latency_s)

    @property
    def counted(self) -> bool:
        """Does anybody draw anything at rest?"""
        return self.idle_w is not None

    def of(self, *seconds: float) -> tuple[FloatArray, ...]:
        """Joules [N] at rest over some seconds, in parts whose exact sum they are; none if free."""
        if self.idle_w is None:
            return ()
        return tuple(part for each in seconds for part in two_product(self.idle_w, each))

    def of_iteration(self, rounds: IntArray, exchange_s: float) -> tuple[FloatArray, ...]:
        """Joules [N] at rest of an iteration with some rounds [N], in parts; none if free."""
        if self.idle_w is None:
            return ()
        longest, rest = training_s(rounds[None], self.round_s)
        return self.of(float(longest[0]), float(rest[0]), exchange_s)

    def rounded(self, seconds: float) -> FloatArray:
        """Joules [N] at rest over some seconds, rounded; zeros if they are free."""
        return np.zeros_like(self.round_s) if self.idle_w is None else self.idle_w * seconds

    def per_iteration(self, exchange_s: ArrayLike, least: int) -> FloatArray:
        """Joules [N] or [n, N] at rest in iterations of the least rounds, never rounded down.

        Args:
            exchange_s: seconds of an exchange, or [n].
            least: rounds of every device.
        """
        slowest = least * float(self.round_s.max())
        each_s = (np.asarray(exchange_s, np.float64)[..., None] + slowest) * _ROUNDING
        return np.asarray(self.rounded(1.0) * each_s)

    def over(self, timeline: Timeline) -> tuple[FloatArray, ...]:
        """Joules [N] at rest of a timeline, while each takes part, never rounded down."""
        if self.idle_w is None:
            return ()
        seconds = np.zeros(len(self.idle_w))
        rows = zip(timeline.rounds, timeline.active, timeline.exchange_s.tolist(), strict=True)
        for rounds, active, exchange_s in rows:
            seconds[active] += float((rounds * self.round_s).max()) + exchange_s
        return (np.asarray(self.idle_w * seconds * (1 + len(timeline.rounds) * _ADDING)),)

    def among(self, who: BoolArray) -> Waiting:
        """Of some devices, bool [N]."""
        return Waiting(None if self.idle_w is None else self.idle_w[who], self.round_s[who])


def least_s(exchange_s: FloatArray, round_s: FloatArray, iterations: int, least: int) -> float:
    """Seconds of n iterations with the least rounds, never rounded down.

    Args:
        exchange_s: [n], or [1] if all exchanges are alike.
        round_s: [N] seconds of one round.
        iterations: n.
        least: rounds of every device in each iteration.

    >>> 5.0 <= least_s(np.array([0.5]), np.array([1.0, 2.0]), 2, 1) < 5.0001
    True
    """
    taken = exact_sum(exchange_s[:, None], iterations if len(exchange_s) == 1 else 1)
    slowest = float(round_s.max()) if least else 0.0
    whole = math.fsum((*(float(part[0]) for part in taken), iterations * least * slowest))
    return whole * _ROUNDING


def longest_s(rounds: IntArray, round_s: FloatArray, exchange_s: FloatArray) -> float:
    """Seconds of some iterations, never rounded down; rounds [n, N], exchange_s [n] or [1]."""
    parts = (*training_s(rounds, round_s), np.broadcast_to(exchange_s, len(rounds)))
    return math.fsum(float(part.sum()) for part in parts) * _ROUNDING


@dataclass(frozen=True, eq=False)
class Purse:
    """Batteries, and what has to be paid from them beside rounds; each float64 [A].

    Attributes:
        battery_j: joules to spend.
        exchange_j: joules of all the exchanges to come.
        rest_j: what that sum of exchanges leaves out (`exact_sum`).
        round_j: joules of one round.
        waiting: what the devices draw at rest.

    >>> one = np.ones(1)
    >>> purse = Purse(10 * one, 2 * one, 0 * one, one, Waiting(0.5 * one, one))
    >>> purse.total(4.0).tolist()
    [6]
    """

    battery_j: FloatArray
    exchange_j: FloatArray
    rest_j: FloatArray
    round_j: FloatArray
    waiting: Waiting

    def total(self, total_s: float) -> IntArray:
        """[A] rounds that each battery pays for beside exchanges and so many seconds at rest."""
        fixed = (self.exchange_j, self.rest_j, *self.waiting.of(total_s))
        return most_affordable(self.battery_j, self.round_j, *fixed)

    def longest_s(self, limits: TimeLimits, iterations: int, least: int) -> float:
        """Seconds that n iterations may take at the most, with the least rounds paid for."""
        idle_w = self.waiting.rounded(1.0)
        spent_j = self.exchange_j + iterations * least * self.round_j
        return affordable_s(self.battery_j, spent_j, idle_w, limits, iterations)

    def among(self, who: BoolArray) -> Purse:
        """Of some devices, bool [N]."""
        return Purse(
            self.battery_j[who],
            self.exchange_j[who],
            self.rest_j[who],
            self.round_j[who],
            self.waiting.among(who),
        )


@dataclass(frozen=True, eq=False)
class Tried:
    """Rounds that were found within a limit on the sum of all iterations.

    Attributes:
        total_s: the limit, for which the batteries pay.
        rounds: int64 [n, A].
        cap: int64 [n, A] or [1, A].
        total: int64 [A]: rounds that the batteries pay for beside that limit.
    """

    total_s: float
    rounds: IntArray
    cap: IntArray
    total: IntArray


def most_rounds(
    low_s: float,
    high_s: float,
    allot: Callable[[float, bool], Tried | None],
    taken_s: Callable[[Tried], float],
    entries: int,
    hint_s: float | None = None,
) -> Tried | None:
    """Try limits on the seconds of all iterations, and keep what gives most rounds.

    Args:
        low_s: seconds that the iterations take at the least.
        high_s: that they may take at the most.
        allot: the rounds for a limit, within which they are kept if its second argument says so,
            and may happen to be if not; None where a battery does not pay or they take longer.
        taken_s: seconds that rounds take, never rounded down.
        entries: of the rounds, n × A; large plans are tried less often.
        hint_s: a limit near which the best one is expected: then only a few are tried.

    Returns:
        The rounds; None if no limit works.
    """
    best: Tried | None = None
    known: dict[tuple[float, bool], Tried | None] = {}

    def attempt(limit_s: float, keep: bool) -> Tried | None:
        nonlocal best
        if (limit_s, keep) not in known:
            known[limit_s, keep] = found = allot(limit_s, keep)
            more = 0 if found is None else int(found.rounds.sum())
            if found is not None and (best is None or more > int(best.rounds.sum())):
                best = found
        return known[limit_s, keep]

    high_s = max(low_s, high_s)
    if hint_s is not None:
        for factor in _NEAR:
            attempt(min(max(low_s, factor * hint_s), high_s), True)
        attempt(min(max(low_s, hint_s), high_s), False)
        if best is not None:
            attempt(min(best.total_s, taken_s(best)), True)
            return best
    few = entries > _LARGE
    grid = np.linspace(low_s, high_s, _GRID // 2 if few else _GRID).tolist()
    for limit in grid:
        if attempt(limit, True) is None:
            attempt(limit, False)  # a policy may not know how to keep to a limit
    for _ in range(1 if few else 3):
        if best is None:
            break
        at = best.total_s
        below = max((s for s in grid if s < at), default=low_s)
        above = min((s for s in grid if s > at), default=high_s)
        grid = np.linspace(below, above, _FINE).tolist()
        for limit in grid:
            attempt(limit, True)
    _unlimited(low_s, high_s, attempt, _HALVINGS // 3 if few else _HALVINGS)
    for _ in range(_POLISHED):  # what the rounds leave of their limit pays for others
        if best is None:
            break
        before, limit = best, min(best.total_s, taken_s(best))
        attempt(limit, True)
        attempt(limit, False)
        if best is before:
            break
    return best


def _unlimited(
    low_s: float, high_s: float, attempt: Callable[[float, bool], Tried | None], halvings: int
) -> None:
    """Try the least limit that rounds keep by themselves, because batteries end them."""
    if attempt(low_s, False) is not None or attempt(high_s, False) is None:
        return
    for _ in range(halvings):
        middle = (low_s + high_s) / 2
        if attempt(middle, False) is None:
            low_s = middle
        else:
            high_s = middle


def affordable_s(
    battery_j: FloatArray, spent_j: FloatArray, idle_w: FloatArray, limits: TimeLimits, n: int
) -> float:
    """Seconds that n iterations may take at the most: limits of time, and batteries at rest.

    Args:
        battery_j: [N].
        spent_j: [N] joules of the exchanges and of compulsory rounds.
        idle_w: [N].
        limits: of time.
        n: number of iterations.

    >>> limits = TimeLimits(deadline_s=3.0, total_s=None)
    >>> affordable_s(np.array([9.0]), np.array([1.0]), np.array([2.0]), limits, 2)
    4.0
    """
    most = [] if limits.total_s is None else [limits.total_s]
    most += [] if limits.deadline_s is None else [n * limits.deadline_s]
    with np.errstate(divide="ignore", invalid="ignore"):
        lasts = np.where(idle_w > 0, (battery_j - spent_j) / idle_w, np.inf)
    return float(min(*most, float(lasts.min()), math.inf))
