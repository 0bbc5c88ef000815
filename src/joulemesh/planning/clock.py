"""How long iterations may take: each of them (the deadline), and all of them together (the total).

An iteration is as long as its slowest training and the exchange.
"""

from __future__ import annotations

__all__ = ["TimeLeft", "TimeLimits", "keeps_total", "longest_s"]

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.ledger import slowest_s, total_of
from joulemesh.planning.budget import rounds_cap, rounds_in_all
from joulemesh.scenario import Scenario
from joulemesh.tolerance import affordable, left_of, within

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class TimeLimits:
    """The time that a scenario allows.

    Attributes:
        deadline_s: seconds of one iteration; None without such a limit.
        total_s: seconds of the whole training; None without such a limit.

    >>> one = TimeLimits(deadline_s=None, total_s=10.0)
    >>> one.caps(np.ones(4), np.array([1.0, 0.3])).tolist()
    [[1, 5]]
    """

    deadline_s: float | None
    total_s: float | None

    @classmethod
    def of(cls, scenario: Scenario) -> TimeLimits:
        """The limits of a scenario."""
        return cls(scenario.budget.deadline_s, scenario.budget.total_s)

    def caps(self, exchange_s: FloatArray, round_s: FloatArray) -> IntArray:
        """Rounds that fit an iteration: before the deadline, and into an equal share of the total.

        Under a total time every iteration has the same time for training: what the exchanges leave
        of the total, divided by n.

        Args:
            exchange_s: [n] seconds of the exchanges.
            round_s: [N] seconds of one round.

        Returns:
            int64 [n, N] or [1, N]; negative where an exchange alone takes too long.
        """
        return self._within(exchange_s, round_s, len(exchange_s))

    def loose_caps(self, exchange_s: FloatArray, round_s: FloatArray) -> IntArray:
        """Rounds that fit an iteration if the others only exchange; see `caps`."""
        return self._within(exchange_s, round_s, 1)

    def _within(self, exchange_s: FloatArray, round_s: FloatArray, shares: int) -> IntArray:
        caps = []
        if self.deadline_s is not None:
            caps.append(rounds_cap(self.deadline_s, exchange_s, round_s))
        if self.total_s is not None:
            whole = rounds_in_all(self.total_s, exchange_s, round_s)
            caps.append(whole[None] // shares)
        return caps[0] if len(caps) == 1 else np.minimum(*caps)

    def training_s(self, exchange_s: FloatArray) -> float:
        """Seconds of the total that the exchanges leave for training; infinite without a total.

        >>> TimeLimits(None, 10.0).training_s(np.full(4, 1.5))
        4.0
        """
        if self.total_s is None:
            return math.inf
        return self.total_s - float(total_of(exchange_s))


def keeps_total(
    total_s: float, rounds: IntArray, round_s: FloatArray, exchange_s: FloatArray
) -> bool:
    """Are all iterations together at most as long as the total?

    Args:
        total_s: seconds of the whole training.
        rounds: [n, N].
        round_s: [N] seconds of one round.
        exchange_s: [n] seconds of the exchanges.

    >>> keeps_total(0.3, np.array([[1], [2]]), np.array([0.1]), np.zeros(2))
    True
    """
    return bool(within(total_s, longest_s(rounds, round_s, exchange_s)))


def longest_s(rounds: IntArray, round_s: FloatArray, exchange_s: FloatArray) -> float:
    """Seconds of some iterations; rounds [n, N], exchange_s [n]."""
    return float((slowest_s(rounds, round_s) + exchange_s).sum())


class TimeLeft:
    """What is left of the total time while iterations go by, one after another.

    Args:
        limits: the time that the scenario allows.
        round_s: [N] seconds of one round.

    >>> left = TimeLeft(TimeLimits(None, 10.0), np.array([1.0, 0.25]))
    >>> left.pay(np.array([2, 4]), 1.5)
    >>> left.caps(np.array([1.5, 1.5])).tolist()  # an equal share of what is left after exchanges
    [[1, 7], [1, 7]]
    """

    def __init__(self, limits: TimeLimits, round_s: FloatArray) -> None:
        self.deadline_s, self.round_s = limits.deadline_s, round_s
        total_s = limits.total_s
        self.limited = total_s is not None
        self.left_s = math.inf if total_s is None else total_s

    @property
    def limits(self) -> TimeLimits:
        """The deadline, and what is left of the total."""
        return TimeLimits(self.deadline_s, self.left_s if self.limited else None)

    def within(self, limit_s: float) -> TimeLeft:
        """The same, but for no more than so many seconds in all."""
        return TimeLeft(TimeLimits(self.deadline_s, min(self.left_s, limit_s)), self.round_s)

    def pay(self, rounds: IntArray, exchange_s: float) -> None:
        """Take the seconds of one iteration; rounds [N]."""
        if self.limited:
            left = left_of(np.array(self.left_s), float((rounds * self.round_s).max()), exchange_s)
            self.left_s = float(left)

    def share_s(self, iterations: int) -> float:
        """Equal share of the remaining time per remaining iteration; at most the deadline.

        >>> TimeLeft(TimeLimits(2.0, 10.0), np.ones(1)).share_s(10)
        1.0
        """
        share_s = max(0.0, self.left_s / iterations)
        return share_s if self.deadline_s is None else min(self.deadline_s, share_s)

    def rounds(self, ahead_s: FloatArray) -> IntArray:
        """[N] rounds, one after the other, for which some exchanges to come leave time."""
        return affordable(self.left_s, self.round_s, ahead_s.sum())

    def training_s(self, ahead_s: FloatArray) -> float:
        """Seconds that some exchanges to come leave for training; infinite without a total."""
        return self.left_s - float(ahead_s.sum())

    def caps(self, ahead_s: FloatArray, shares: int | None = None) -> IntArray:
        """[rows, N] rounds that fit each iteration to come, whose exchanges take ``ahead_s``.

        Args:
            ahead_s: [rows] seconds.
            shares: into how many parts the time for training is divided; the rows unless given.
        """
        rows = len(ahead_s)
        caps = []
        if self.deadline_s is not None:
            caps.append(rounds_cap(self.deadline_s, ahead_s, self.round_s))
        if self.limited:
            share = self.rounds(ahead_s) // (rows if shares is None else shares)
            caps.append(np.broadcast_to(share, (rows, len(share))))
        return caps[0] if len(caps) == 1 else np.minimum(*caps)

    def allows(
        self, rounds: IntArray | int, now_s: float, later_s: FloatArray, keep: int, who: BoolArray
    ) -> bool:
        """Is there time for some rounds and an exchange now, and for what is kept for later?

        Args:
            rounds: of every device, or [N].
            now_s: seconds of the exchange.
            later_s: [rows] seconds of exchanges that are to remain possible.
            keep: rounds of the slowest device that are to remain possible.
            who: bool [N]: who takes part.
        """
        each = np.where(who, rounds, 0)
        if self.deadline_s is not None:
            in_time = rounds_cap(self.deadline_s, now_s, self.round_s) >= each
            if not in_time[who].all():
                return False
        if not self.limited:
            return True
        taken_s = float((each * self.round_s).max()) + now_s + float(later_s.sum())
        return int(affordable(self.left_s, self.round_s[who].max(), taken_s)) >= keep
