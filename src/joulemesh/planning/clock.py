"""How long iterations may take: each of them (the deadline), and all of them together (the total).

An iteration is as long as its slowest training and the exchange. Nothing is forgiven: the lengths
of all iterations, as exact sums of products of float64 figures, are at most the total.
"""

from __future__ import annotations

__all__ = ["TimeLeft", "TimeLimits", "keeps_total", "training_s"]

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.budget import rounds_cap, rounds_in_all
from joulemesh.planning.exact import exact_sum, most_affordable, remainder, two_product, within
from joulemesh.scenario import Scenario

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_ROUNDING = 2.0**-50  # more than rounding adds to a sum of lengths, each rounded twice


@dataclass(frozen=True)
class TimeLimits:
    """The time that a scenario allows.

    Attributes:
        deadline_s: seconds of one iteration; None without such a limit.
        total_s: seconds of the whole training; None without such a limit.

    >>> one = TimeLimits(deadline_s=None, total_s=10.0)
    >>> one.caps(np.array([1.0]), np.array([1.0, 0.3]), iterations=4).tolist()
    [[1, 5]]
    """

    deadline_s: float | None
    total_s: float | None

    @classmethod
    def of(cls, scenario: Scenario) -> TimeLimits:
        """The limits of a scenario."""
        return cls(scenario.budget.deadline_s, scenario.budget.total_s)

    def caps(self, exchange_s: FloatArray, round_s: FloatArray, iterations: int) -> IntArray:
        """Rounds that fit an iteration: before the deadline, and into an equal share of the total.

        Under a total time every iteration has the same time for training: what the exchanges leave
        of the total, divided by n.

        Args:
            exchange_s: [n], or [1] if all exchanges are alike.
            round_s: [N] seconds of one round.
            iterations: n.

        Returns:
            int64 [n, N] or [1, N]; negative where an exchange alone takes too long.
        """
        return self._within(exchange_s, round_s, iterations, iterations)

    def loose_caps(self, exchange_s: FloatArray, round_s: FloatArray, iterations: int) -> IntArray:
        """Rounds that fit an iteration if the others only exchange; see `caps`."""
        return self._within(exchange_s, round_s, iterations, 1)

    def _within(
        self, exchange_s: FloatArray, round_s: FloatArray, iterations: int, shares: int
    ) -> IntArray:
        caps = []
        if self.deadline_s is not None:
            caps.append(rounds_cap(self.deadline_s, exchange_s, round_s))
        if self.total_s is not None:
            whole = rounds_in_all(self.total_s, exchange_s, round_s, iterations)
            caps.append(whole[None] // shares)
        return caps[0] if len(caps) == 1 else np.minimum(*caps)

    def training_s(self, exchange_s: FloatArray, iterations: int) -> float:
        """Seconds of the total that the exchanges leave for training; infinite without a total.

        >>> TimeLimits(None, 10.0).training_s(np.array([1.5]), 4)
        4.0
        """
        if self.total_s is None:
            return math.inf
        taken_s = exact_sum(exchange_s[:, None], iterations if len(exchange_s) == 1 else 1)
        return math.fsum((self.total_s, *(-float(part[0]) for part in taken_s)))

    def tightened(self) -> TimeLimits:
        """A total smaller by a part in 10¹⁵, so that a ledger keeps it whose entries are rounded.

        >>> TimeLimits(1.0, 8.0).tightened().total_s < 8.0
        True
        """
        if self.total_s is None:
            return self
        return replace(self, total_s=self.total_s * (1 - _ROUNDING))


def training_s(rounds: IntArray, round_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Seconds of the slowest training in each iteration, and what rounding leaves out of them.

    Args:
        rounds: [n, N].
        round_s: [N].

    Returns:
        float64 [n] each; both together are exact.

    >>> training_s(np.array([[3, 1], [0, 0]]), np.array([0.5, 1.0]))[0].tolist()
    [1.5, 0.0]
    """
    longest, rest = np.zeros(len(rounds)), np.zeros(len(rounds))
    for t, row in enumerate(rounds):
        seconds = row * round_s
        ties = np.flatnonzero(seconds == seconds.max())  # rounding never changes the order
        high, low = two_product(row[ties], round_s[ties])
        longest[t], rest[t] = high[0], low.max()
    return longest, rest


def keeps_total(
    total_s: float, rounds: IntArray, round_s: FloatArray, exchange_s: FloatArray
) -> bool:
    """Are all iterations together at most as long as the total, exactly and as the ledger rounds?

    Args:
        total_s: seconds of the whole training.
        rounds: [n, N].
        round_s: [N] seconds of one round.
        exchange_s: [n], or [1] if all exchanges are alike.

    >>> keeps_total(0.3, np.array([[1], [2]]), np.array([0.1]), np.array([0.0]))
    False
    """
    longest, rest = training_s(rounds, round_s)
    taken_s = np.broadcast_to(exchange_s, longest.shape)
    budget = np.array([total_s])
    exact = exact_sum(np.concatenate([longest, rest, taken_s])[:, None])
    ledger = exact_sum((longest + taken_s)[:, None])
    return bool(within(budget, *exact)[0] and within(budget, *ledger)[0])


class TimeLeft:
    """What is left of the total time while iterations go by, one after another.

    Args:
        limits: the time that the scenario allows.
        round_s: [N] seconds of one round.

    >>> left = TimeLeft(TimeLimits(None, 10.0), np.array([1.0, 0.25]))
    >>> left.pay(np.array([2, 4]), 1.5)
    >>> left.caps(np.array([1.5, 1.5])).tolist()  # an equal share of what is left after exchanges
    [[1, 6], [1, 6]]
    """

    def __init__(self, limits: TimeLimits, round_s: FloatArray) -> None:
        self.deadline_s, self.round_s = limits.deadline_s, round_s
        total_s = limits.tightened().total_s
        self.limited = total_s is not None
        self.left_s = np.full(1, np.inf if total_s is None else total_s)
        self.owed_s = np.zeros(1)  # what rounding leaves out of what was taken

    @property
    def limits(self) -> TimeLimits:
        """The deadline, and what is left of the total."""
        return TimeLimits(self.deadline_s, float(self.left_s[0]) if self.limited else None)

    def within(self, limit_s: float) -> TimeLeft:
        """The same, but for no more than so many seconds in all."""
        total_s = min(float(self.left_s[0]), limit_s)
        made = TimeLeft(TimeLimits(self.deadline_s, total_s), self.round_s)
        made.owed_s = self.owed_s
        return made

    def pay(self, rounds: IntArray, exchange_s: float) -> None:
        """Take the seconds of one iteration; rounds [N]."""
        if self.limited:
            longest, rest = training_s(rounds[None], self.round_s)
            self.left_s, self.owed_s = remainder(
                self.left_s, self.owed_s + rest, longest, np.array([exchange_s])
            )

    def share_s(self, iterations: int) -> float:
        """The most seconds of an iteration of which so many are left.

        >>> TimeLeft(TimeLimits(2.0, 10.0), np.ones(1)).share_s(10) < 1.0
        True
        """
        share_s = max(0.0, float(self.left_s[0] - self.owed_s[0]) / iterations * (1 - _ROUNDING))
        return share_s if self.deadline_s is None else min(self.deadline_s, share_s)

    def rounds(self, ahead_s: FloatArray) -> IntArray:
        """[N] rounds, one after the other, for which some exchanges to come leave time."""
        return most_affordable(self.left_s, self.round_s, *exact_sum(ahead_s[:, None]), self.owed_s)

    def training_s(self, ahead_s: FloatArray) -> float:
        """Seconds that some exchanges to come leave for training; infinite without a total."""
        if not self.limited:
            return math.inf
        taken_s = (*exact_sum(ahead_s[:, None]), self.owed_s)
        return math.fsum((float(self.left_s[0]), *(-float(part[0]) for part in taken_s)))

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
        slowest_s = self.round_s[who].max(keepdims=True)
        kept_s = exact_sum(np.append(later_s, 0.0)[:, None])
        taken_s = (*training_s(each[None], self.round_s), np.array([now_s]), *kept_s, self.owed_s)
        return bool(most_affordable(self.left_s, slowest_s, *taken_s)[0] >= keep)
