"""Which candidate is tried next, and with how much of the budget: the seam under `tune`.

Successive halving (Jamieson, Talwalkar: "Non-stochastic Best Arm Identification and Hyperparameter
Optimization", AISTATS 2016) with the budget as the resource: all candidates get a small share of
the joules and seconds, the best third of them a larger one, and so on to the whole.
"""

from __future__ import annotations

__all__ = ["KEEP", "SHARES", "Halving", "Trial", "Tuner", "survivors"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from joulemesh.base.errors import ScenarioError
from joulemesh.study.objective import Score

SHARES = (0.1, 1 / 3, 1.0)
"""Of the budget: what candidates get in each rung."""
KEEP = 3
"""One of so many candidates goes on to the next rung."""
_LAST = 2  # candidates that reach the last rung at least, so that it decides something


@dataclass(frozen=True)
class Trial:
    """A candidate to be trained with a share of the budget.

    Attributes:
        candidate: its number.
        rung: number of the rung, from 0.
        share: of batteries, total time and iterations.
    """

    candidate: int
    rung: int
    share: float


class Tuner(Protocol):
    """What decides which candidates are tried: ask for trials, train them, tell what came out."""

    @property
    def finished(self) -> bool:
        """Is there nothing left to try?"""

    def ask(self) -> Trial | None:
        """The next trial; None while all that were given out have to be told first."""

    def tell(self, trial: Trial, score: Score | None) -> None:
        """Say how a trial did; None if its share of the budget does not pay for an iteration."""

    @property
    def best(self) -> int | None:
        """The best candidate so far: of those judged with the largest share; None before any."""

    @property
    def left(self) -> float:
        """Work still expected, in trainings with the whole budget."""


def survivors(count: int, keep: int = KEEP) -> int:
    """How many of a rung's candidates go on: one of ``keep``, rounded up, and no fewer than two.

    >>> [survivors(count) for count in (30, 10, 4, 2, 1)]
    [10, 4, 2, 2, 1]
    """
    return min(count, max(_LAST, math.ceil(count / keep)))


class Halving:
    """Successive halving over candidates 0..count−1.

    Candidates that score the same are kept in their order: give the cheapest first. One whose
    share of the budget does not pay for an iteration cannot be judged; it goes on to the next
    rung without taking the place of another.

    Args:
        count: how many candidates there are.
        shares: of the budget, ascending; the last is 1.
        keep: one of so many goes on.

    >>> tuner, accuracy = Halving(9), [0.1, 0.9, 0.3, 0.2, 0.5, 0.4, 0.6, 0.7, 0.8]
    >>> while not tuner.finished:
    ...     trial = tuner.ask()
    ...     tuner.tell(trial, Score(0, -accuracy[trial.candidate]))
    >>> tuner.best, [len(rung) for rung in tuner.rungs]
    (1, [9, 3, 2])
    """

    def __init__(self, count: int, shares: Sequence[float] = SHARES, keep: int = KEEP) -> None:
        wrong = [b for a, b in zip((0.0, *shares), shares, strict=False) if b <= a]
        if not shares or wrong or shares[-1] != 1:
            raise ScenarioError(
                f"shares {list(shares)} are out of order: give ascending shares of the budget, "
                "above 0, the last of them 1"
            )
        if keep < 2:
            raise ScenarioError(f"keep = {keep} drops nothing: use 2 or more")
        if count < 1:
            raise ScenarioError("there is no candidate to try: give a space with one or more")
        self.shares, self.keep = tuple(shares), keep
        self.rungs: list[dict[int, Score | None]] = [{}]
        self._waiting = list(range(count))
        self._open: set[int] = set()

    @property
    def finished(self) -> bool:
        """Has the last rung been told?"""
        return not self._waiting and not self._open

    def ask(self) -> Trial | None:
        """The next trial of the rung; None while its last ones have to be told first."""
        if not self._waiting:
            return None
        candidate = self._waiting.pop(0)
        self._open.add(candidate)
        rung = len(self.rungs) - 1
        return Trial(candidate, rung, self.shares[rung])

    def tell(self, trial: Trial, score: Score | None) -> None:
        """Say how a trial did; the last answer of a rung opens the next.

        Raises:
            ScenarioError: a trial that was not asked for, or has been told.
        """
        if trial.candidate not in self._open or trial.rung != len(self.rungs) - 1:
            raise ScenarioError(
                f"candidate {trial.candidate} of rung {trial.rung} was not asked for, or has been "
                "told: tell each trial once"
            )
        self._open.remove(trial.candidate)
        self.rungs[-1][trial.candidate] = score
        if not self._waiting and not self._open and len(self.rungs) < len(self.shares):
            self._waiting = self._going_on()
            self.rungs.append({})

    def _going_on(self) -> list[int]:
        """The candidates of the next rung, in their order."""
        told = self.rungs[-1]
        judged = self.ranking(len(self.rungs) - 1)
        kept = set(judged[: survivors(len(judged), self.keep)])
        return sorted(c for c, score in told.items() if score is None or c in kept)

    def ranking(self, rung: int) -> list[int]:
        """The candidates that were judged in a rung, the best first."""
        told = self.rungs[rung]
        judged = [(score, c) for c, score in told.items() if score is not None]
        return [c for _, c in sorted(judged)]

    @property
    def left(self) -> float:
        """Work still expected, in trainings with the whole budget: untold trials, and rungs ahead.

        >>> round(Halving(9).left, 6)  # 9 tenths, 3 thirds, 2
        3.9
        """
        rung = len(self.rungs) - 1
        work = (len(self._waiting) + len(self._open)) * self.shares[rung]
        count = len(self._waiting) + len(self._open) + len(self.rungs[-1])
        for share in self.shares[rung + 1 :]:
            count = survivors(count, self.keep)
            work += count * share
        return work

    @property
    def best(self) -> int | None:
        """The best of the highest rung in which any candidate was judged."""
        for rung in reversed(range(len(self.rungs))):
            judged = self.ranking(rung)
            if judged:
                return judged[0]
        return None
