"""What is to be best: accuracy at the end of the budgets, or the price of a target accuracy."""

from __future__ import annotations

__all__ = ["Objective", "Score"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from joulemesh.errors import ScenarioError
from joulemesh.metrics.curves import CURVES
from joulemesh.results.statistics import reached_at
from joulemesh.studies.record import Record
from joulemesh.units import duration, energy

_ACCURACY = CURVES.index("test_accuracy")
_KINDS = ("accuracy", "energy-to", "time-to")


@dataclass(frozen=True, order=True)
class Score:
    """How good a candidate is: of two, the lesser is better.

    Attributes:
        rank: 0 for what has a figure of the objective; 1 for what did not reach the target, which
            is then compared by accuracy; 2 for what diverged.
        cost: what is minimised within a rank: joules, seconds, or minus the accuracy.

    >>> sorted([Score(1, -0.7), Score(2, 0.0), Score(0, 12.0)])[0]
    Score(rank=0, cost=12.0)
    """

    rank: int
    cost: float


@dataclass(frozen=True)
class Objective:
    """What is to be best.

    Attributes:
        kind: ``"accuracy"`` of the mean model at the end; ``"energy-to"`` or ``"time-to"``: joules
            of all devices, or seconds, until its accuracy first reaches the target.
        target: an accuracy; None for ``"accuracy"``.

    >>> Objective.parse("energy-to:0.8")
    Objective(kind='energy-to', target=0.8)
    >>> Objective.parse("time-to:80")
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: objective time-to:80: the target is an accuracy, above 0 and ...
    """

    kind: Literal["accuracy", "energy-to", "time-to"] = "accuracy"
    target: float | None = None

    @classmethod
    def parse(cls, text: str) -> Objective:
        """The objective that a text names: ``accuracy``, ``energy-to:0.8`` or ``time-to:0.8``."""
        kind, colon, figure = text.strip().partition(":")
        if kind == "accuracy" and not colon:
            return cls()
        if kind not in _KINDS[1:]:
            raise ScenarioError(
                f"objective {text[:60]!r} is unknown: use accuracy, energy-to:0.8 or time-to:0.8"
            )
        try:
            target = float(figure)
        except ValueError:
            target = math.nan
        if not 0 < target <= 1:
            raise ScenarioError(
                f"objective {text[:60]}: the target is an accuracy, above 0 and at most 1; "
                f"write {kind}:0.8"
            )
        return cls("energy-to" if kind == "energy-to" else "time-to", target)

    def __str__(self) -> str:
        """As on the command line."""
        return self.kind if self.target is None else f"{self.kind}:{self.target:g}"

    @property
    def words(self) -> str:
        """What is to be best, in words."""
        if self.target is None:
            return "highest accuracy within the budgets"
        what = "fewest joules" if self.kind == "energy-to" else "fewest seconds"
        return f"{what} to accuracy {self.target:g}"

    def figures(self, runs: Sequence[Record]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The objective's figure of every seed: accuracy, joules or seconds; NaN where none is."""
        if self.target is None:
            return accuracies(runs)
        return np.array([self._price(run) for run in runs], np.float64)

    def _price(self, run: Record) -> float:
        assert self.target is not None
        if run.diverged:
            return math.nan
        cost = run.energy_j if self.kind == "energy-to" else run.time_s
        curve = run.curves[:, _ACCURACY]
        found = reached_at(run.iteration, curve[:, None], cost[:, None], self.target)
        return float(found.value[0])

    def score(self, runs: Sequence[Record]) -> Score:
        """How good a candidate is, from its runs at all seeds (the same for all candidates).

        A candidate with a seed that diverged is out. Where some seed does not reach the target,
        the mean final accuracy decides, after all candidates that reach it at every seed.
        """
        if any(run.diverged for run in runs):
            return Score(2, 0.0)
        accuracy = float(np.mean(accuracies(runs)))
        if self.target is None:
            return Score(0, -accuracy)
        prices = self.figures(runs)
        if np.isfinite(prices).all():
            return Score(0, float(prices.mean()))
        return Score(1, -accuracy)

    def text(self, score: Score) -> str:
        """A score in words.

        >>> Objective().text(Score(0, -0.9512)), Objective.parse("time-to:0.9").text(Score(0, 2.5))
        ('95.1 %', '2.5 s')
        """
        if score.rank == 2:
            return "diverged"
        if self.target is None or score.rank == 1:
            reached = "" if score.rank == 0 else ", target not reached"
            return f"{-100 * score.cost:.1f} %{reached}"
        return energy(score.cost) if self.kind == "energy-to" else duration(score.cost)


def accuracies(runs: Sequence[Record]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Final test accuracy of the mean model of every run; NaN for one that diverged.

    >>> accuracies([Record(diverged=3)])
    array([nan])
    """
    return np.array([run.final[_ACCURACY] for run in runs], np.float64)
