"""What is to be best: the score at the end of the budgets, or the price of a target score."""

from __future__ import annotations

__all__ = ["SCORE", "Objective", "Score", "final_scores"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import duration, energy
from joulemesh.metrics import Metric, score_metric
from joulemesh.models.curves import score_place
from joulemesh.study.record import Record
from joulemesh.study.statistics import reached_at

SCORE = "score"
_PRICES = ("energy-to", "time-to")


@dataclass(frozen=True, order=True)
class Score:
    """How good a candidate is: of two, the lesser is better.

    Attributes:
        rank: 0 for what has a figure of the objective; 1 for what did not reach the target, which
            is then compared by its score; 2 for what diverged.
        cost: what is minimised within a rank: joules, seconds, or minus the accuracy (a score of
            which lower is better, as it is).

    >>> sorted([Score(1, -0.7), Score(2, 0.0), Score(0, 12.0)])[0]
    Score(rank=0, cost=12.0)
    """

    rank: int
    cost: float


@dataclass(frozen=True)
class Objective:
    """What is to be best.

    Attributes:
        kind: the ``"score"`` of the mean model at the end, accuracy, say; ``"energy-to"`` or
            ``"time-to"``: joules of all devices, or seconds, until it first reaches the target.
        target: a score; None for ``"score"``.
        by: the metric that is the score.

    >>> Objective.parse("energy-to:0.8")
    Objective(kind='energy-to', target=0.8, by='accuracy')
    >>> Objective.parse("time-to:80")
    Traceback (most recent call last):
    joulemesh.ScenarioError: objective time-to:80: the target is an accuracy, above 0 and ...
    """

    kind: Literal["score", "energy-to", "time-to"] = "score"
    target: float | None = None
    by: str = "accuracy"

    @classmethod
    def parse(cls, text: str, by: str = "accuracy") -> Objective:
        """The objective that a text names: ``score``, ``energy-to:0.8`` or ``time-to:0.8``.

        Args:
            text: the name of the metric means ``score``, too.
            by: the metric that is the score.
        """
        kind, colon, figure = text.strip().partition(":")
        if kind in (SCORE, by) and not colon:
            return cls(by=by)
        if kind not in _PRICES:
            raise ScenarioError(
                f"objective {text[:60]!r} is unknown: use {by}, energy-to:0.8 or time-to:0.8"
            )
        try:
            target = float(figure)
        except ValueError:
            target = math.nan
        metric = score_metric(by)
        if not (math.isfinite(target) and (not metric.share or 0 < target <= 1)):
            a = "an" if metric.label[0] in "aeiou" else "a"
            span = ", above 0 and at most 1" if metric.share else ""
            raise ScenarioError(
                f"objective {text[:60]}: the target is {a} {metric.label}{span}; write {kind}:0.8"
            )
        return cls("energy-to" if kind == "energy-to" else "time-to", target, by)

    @property
    def metric(self) -> Metric:
        """What the score is, with its words and which direction is better."""
        return score_metric(self.by)

    def __str__(self) -> str:
        """As on the command line."""
        return self.by if self.target is None else f"{self.kind}:{self.target:g}"

    @property
    def words(self) -> str:
        """What is to be best, in words."""
        if self.target is None:
            end = "highest" if self.metric.better == "higher" else "lowest"
            return f"{end} {self.metric.label} within the budgets"
        what = "fewest joules" if self.kind == "energy-to" else "fewest seconds"
        return f"{what} to {self.metric.label} {self.target:g}"

    def figures(self, runs: Sequence[Record]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The objective's figure of every seed: score, joules or seconds; NaN where none is."""
        if self.target is None:
            return final_scores(runs, self.by)
        return np.array([self._price(run) for run in runs], np.float64)

    def _price(self, run: Record) -> float:
        assert self.target is not None
        if run.diverged:
            return math.nan
        cost = run.energy_j if self.kind == "energy-to" else run.time_s
        curve, better = run.curves[:, score_place(self.by)], self.metric.better
        found = reached_at(run.iteration, curve[:, None], cost[:, None], self.target, better)
        return float(found.value[0])

    def score(self, runs: Sequence[Record]) -> Score:
        """How good a candidate is, from its runs at all seeds (the same for all candidates).

        A candidate with a seed that diverged is out. Where some seed does not reach the target,
        the mean final score decides, after all candidates that reach it at every seed.
        """
        if any(run.diverged for run in runs):
            return Score(2, 0.0)
        lack = -self.metric.sign * float(np.mean(final_scores(runs, self.by)))
        if self.target is None:
            return Score(0, lack)
        prices = self.figures(runs)
        if np.isfinite(prices).all():
            return Score(0, float(prices.mean()))
        return Score(1, lack)

    def text(self, score: Score) -> str:
        """A score in words.

        >>> Objective().text(Score(0, -0.9512)), Objective.parse("time-to:0.9").text(Score(0, 2.5))
        ('95.1 %', '2.5 s')
        """
        if score.rank == 2:
            return "diverged"
        if self.target is None or score.rank == 1:
            reached = "" if score.rank == 0 else ", target not reached"
            return f"{self.metric.text(-self.metric.sign * score.cost)}{reached}"
        return energy(score.cost) if self.kind == "energy-to" else duration(score.cost)


def final_scores(
    runs: Sequence[Record], by: str = "accuracy"
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Final score of the mean model of every run; NaN for one that diverged.

    >>> final_scores([Record(diverged=3)])
    array([nan])
    """
    return np.array([run.final[score_place(by)] for run in runs], np.float64)
