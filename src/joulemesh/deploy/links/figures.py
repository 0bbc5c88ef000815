"""Timed transfers over one direction of a link, and the rate with its interval that they give."""

from __future__ import annotations

__all__ = ["LinkFigures", "Rate", "Rule", "Timed", "rate_of"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

_CONFIDENCE = 0.95
MOST_TIMED = 1000
"""Transfers of one direction that are timed; those beyond only keep up the load."""

WIDE = 0.10
"""Half of an interval, as a share of the figure, beyond which a figure is not to be relied on."""


@dataclass(frozen=True)
class Rule:
    """How a link is measured.

    Attributes:
        payload_bytes: of one transfer.
        within: half of the 95 % interval, as a share of the mean, at which measuring ends.
        seconds: after which it ends in any case, once ``least`` transfers were timed.
        least: transfers that are timed at least.
        together: go on until the time is up, so that every link is measured under the load of all.
    """

    payload_bytes: int
    within: float = 0.05
    seconds: float = 10.0
    least: int = 5
    together: bool = False

    def enough(self, seconds: Sequence[float], elapsed_s: float) -> bool:
        """Whether transfers that took so long suffice.

        >>> Rule(100).enough([1.0] * 5, 5.0), Rule(100).enough([1.0, 2.0] * 3, 9.0)
        (True, False)
        >>> Rule(100, together=True).enough([1.0] * 5, 5.0)
        False
        """
        if len(seconds) < self.least:
            return False
        if elapsed_s >= self.seconds or self.together:
            return elapsed_s >= self.seconds
        narrow = half_width(seconds) <= self.within * float(np.mean(seconds))
        return narrow or len(seconds) >= MOST_TIMED


class Rate(NamedTuple):
    """A rate and its 95 % interval, in bit/s."""

    bps: float
    low: float
    high: float

    @property
    def wide(self) -> bool:
        """Is the interval wider than ±10 %?

        >>> Rate(100.0, 95.0, 104.0).wide, Rate(100.0, 88.0, 114.0).wide
        (False, True)
        """
        return self.high - self.low > 2 * WIDE * self.bps


@dataclass(frozen=True)
class Timed:
    """Transfers from one device to another.

    Attributes:
        here: the sender.
        there: the receiver.
        payload_bytes: of each transfer.
        seconds: that each took, until the receiver had all of it.
        rtt_s: median round trip of a message without content.
        segments: of TCP that were sent meanwhile; None where the system does not say.
        resent: those among them that were sent again.
        trouble: why there are no transfers.
    """

    here: str
    there: str
    payload_bytes: int = 0
    seconds: tuple[float, ...] = ()
    rtt_s: float = math.nan
    segments: int | None = None
    resent: int | None = None
    trouble: str = ""

    @property
    def rate(self) -> Rate:
        """The rate that these transfers give."""
        return rate_of(8.0 * self.payload_bytes, self.seconds)

    @property
    def retransmitted(self) -> float | None:
        """Share of TCP's segments that were sent again; None where the system does not say.

        >>> Timed("a", "b", segments=200, resent=3).retransmitted
        0.015
        """
        if self.resent is None or not self.segments:
            return None
        return self.resent / self.segments


@dataclass(frozen=True)
class LinkFigures:
    """One direction of a link, as it was measured.

    Attributes:
        i: number of the sender.
        j: number of the receiver.
        alone: transfers while no other link was in use; None if they were not made.
        together: transfers while all links were in use.
    """

    i: int
    j: int
    alone: Timed | None = None
    together: Timed | None = None

    @property
    def trouble(self) -> str:
        """Why there is no figure; empty if there is one."""
        both = [one for one in (self.alone, self.together) if one is not None]
        if any(one.seconds for one in both):
            return ""
        return next((one.trouble for one in both if one.trouble), "nothing was measured")

    def chosen(self, use: str = "lower") -> Timed:
        """The transfers whose rate a plan is to take.

        Args:
            use: ``"alone"``, ``"together"``, or the ``"lower"`` of both rates.

        >>> fast, slow = (Timed("a", "b", 125, (s, s)) for s in (0.1, 0.2))
        >>> link = LinkFigures(0, 1, fast, slow)
        >>> link.chosen().rate.bps, link.chosen("alone").rate.bps
        (5000.0, 10000.0)
        """
        named = {"alone": self.alone, "together": self.together}.get(use)
        if named is not None and named.seconds:
            return named
        there = [one for one in (self.alone, self.together) if one is not None and one.seconds]
        return min(there, key=lambda one: one.rate.bps)

    def rate(self, use: str = "lower") -> Rate:
        """The rate that a plan is to take."""
        return self.chosen(use).rate


def half_width(seconds: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean (Student's t).

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    if len(seconds) < 2:
        return math.inf
    spread = float(np.std(seconds, ddof=1)) / math.sqrt(len(seconds))
    return float(stdtrit(len(seconds) - 1, (1 + _CONFIDENCE) / 2)) * spread


def rate_of(bits: float, seconds: Sequence[float]) -> Rate:
    """The rate of transfers, with its interval.

    Seconds of transfers add up in a plan, rates do not: so it is the bits over the mean of the
    seconds, and the interval is that of the mean.

    Args:
        bits: of each transfer.
        seconds: that each took.

    >>> rate_of(1000.0, [1.0, 1.0, 1.0, 1.0])
    Rate(bps=1000.0, low=1000.0, high=1000.0)
    >>> [round(one) for one in rate_of(1000.0, [0.9, 1.0, 1.1])]
    [1000, 801, 1331]
    """
    if not seconds:
        return Rate(math.nan, math.nan, math.nan)
    mean, half = float(np.mean(seconds)), half_width(seconds)
    least = max(mean - half, mean / 10)  # of very uneven transfers, to stay finite
    return Rate(bits / mean, bits / (mean + half), bits / least)
