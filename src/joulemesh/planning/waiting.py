"""The energy of waiting: what devices draw at rest, for as long as the slowest takes.

A device draws ``devices.idle_w`` during the whole of every iteration in which it takes part:
while it trains, sends, and waits for the slowest. So a battery pays for the seconds of all
iterations, and every device's rounds cost all others the joules of waiting for them. How long the
iterations may be is therefore a choice: with a limit T on their sum, a battery B_i pays for
⌊(B_i − exchanges − idle_w·T) / joules of a round⌋ rounds. A larger T leaves more time to train and
less energy; limits are tried, and the one is kept that gives most rounds.
"""

from __future__ import annotations

__all__ = ["Purse", "Tried", "Waiting", "affordable_s", "least_s", "most_rounds"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.ledger import slowest_s, total_of
from joulemesh.planning.clock import TimeLimits
from joulemesh.planning.timeline import Timeline
from joulemesh.tolerance import affordable
from joulemesh.world.devices import DeviceArrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

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
    >>> rest.of(4.0).tolist()
    [8.0, 2.0]
    >>> rest.of_iteration(np.array([3, 2]), 1.0).tolist()  # 6 s of training, 1 s of exchange
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

    def of(self, seconds: float) -> FloatArray:
        """Joules [N] at rest over some seconds; zeros if they are free."""
        return np.zeros_like(self.round_s) if self.idle_w is None else self.idle_w * seconds

    def of_iteration(self, rounds: IntArray, exchange_s: float) -> FloatArray:
        """Joules [N] at rest of an iteration with some rounds [N]; zeros if they are free."""
        return self.of(float((rounds * self.round_s).max()) + exchange_s)

    def per_iteration(self, exchange_s: ArrayLike, least: int) -> FloatArray:
        """Joules [N] or [n, N] at rest in iterations of the least rounds.

        Args:
            exchange_s: seconds of an exchange, or [n].
            least: rounds of every device.
        """
        slowest = least * float(self.round_s.max())
        return np.asarray(self.of(1.0) * (np.asarray(exchange_s, np.float64)[..., None] + slowest))

    def over(self, timeline: Timeline) -> FloatArray:
        """Joules [N] at rest of a timeline, while each takes part; zeros if they are free."""
        seconds = np.zeros_like(self.round_s)
        if self.idle_w is None:
            return seconds
        longest_s = slowest_s(timeline.rounds, self.round_s) + timeline.exchange.seconds
        for active, taken_s in zip(timeline.active, longest_s.tolist(), strict=True):
            seconds[active] += taken_s
        return np.asarray(self.idle_w * seconds)

    def among(self, who: BoolArray) -> Waiting:
        """Of some devices, bool [N]."""
        return Waiting(None if self.idle_w is None else self.idle_w[who], self.round_s[who])


def least_s(exchange_s: FloatArray, round_s: FloatArray, least: int) -> float:
    """Seconds of n iterations with the least rounds.

    Args:
        exchange_s: [n] seconds of the exchanges.
        round_s: [N] seconds of one round.
        least: rounds of every device in each iteration.

    >>> least_s(np.full(2, 0.5), np.array([1.0, 2.0]), 1)
    5.0
    """
    slowest = float(round_s.max()) if least else 0.0
    return float(total_of(exchange_s)) + len(exchange_s) * least * slowest


@dataclass(frozen=True, eq=False)
class Purse:
    """Batteries, and what has to be paid from them beside rounds; each float64 [A].

    Attributes:
        battery_j: joules to spend.
        exchange_j: joules of all the exchanges to come.
        round_j: joules of one round.
        waiting: what the devices draw at rest.

    >>> one = np.ones(1)
    >>> purse = Purse(10 * one, 2 * one, one, Waiting(0.5 * one, one))
    >>> purse.total(4.0).tolist()
    [6]
    """

    battery_j: FloatArray
    exchange_j: FloatArray
    round_j: FloatArray
    waiting: Waiting

    def total(self, total_s: float) -> IntArray:
        """[A] rounds that each battery pays for beside exchanges and so many seconds at rest."""
        waits_j = self.waiting.of(total_s)
        return affordable(self.battery_j, self.round_j, self.exchange_j, waits_j)

    def longest_s(self, limits: TimeLimits, iterations: int, least: int) -> float:
        """Seconds that n iterations may take at the most, with the least rounds paid for."""
        idle_w = self.waiting.of(1.0)
        spent_j = self.exchange_j + iterations * least * self.round_j
        return affordable_s(self.battery_j, spent_j, idle_w, limits, iterations)

    def among(self, who: BoolArray) -> Purse:
        """Of some devices, bool [N]."""
        return Purse(
            self.battery_j[who],
            self.exchange_j[who],
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
        taken_s: seconds that rounds take.
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
