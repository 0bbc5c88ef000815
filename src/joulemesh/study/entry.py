"""One method in a comparison: its curves and costs at every seed."""

from __future__ import annotations

__all__ = ["FIGURE", "Entry", "TunedRate", "across", "gathered", "notes_over_worlds"]

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from joulemesh.metrics import Reported, score_metric
from joulemesh.models.curves import column_names
from joulemesh.study.statistics import estimate

FloatArray = NDArray[np.float64]


FIGURE = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?")


def notes_over_worlds(each: Sequence[Sequence[str]]) -> Iterator[str]:
    """Notes of several worlds; those that differ in figures alone become one.

    Args:
        each: the notes of each world.

    >>> list(notes_over_worlds([["the tree is deep", "3 never train"], ["the tree is deep"]]))
    ['the tree is deep', 'in 1 of 2 worlds, for instance world 0: 3 never train']
    """
    kinds: dict[str, list[tuple[int, str]]] = {}
    for k, notes in enumerate(each):
        for note in notes:
            kinds.setdefault(FIGURE.sub("#", note), []).append((k, note))
    for found in kinds.values():
        count = len({k for k, _ in found})
        k, note = found[0]
        if count == len(each) and len({text for _, text in found}) == 1:
            yield note
        else:
            yield f"in {count} of {len(each)} worlds, for instance world {k}: {note}"


"""Of notes that say the same with other figures."""


def gathered(said: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Notes with the names of all whom they concern, each note once.

    Args:
        said: a name and its notes, one after another.

    >>> gathered([("spread", ["one is idle", "late"]), ("adaptive", ["one is idle"])])
    [('spread, adaptive', 'one is idle'), ('spread', 'late')]
    """
    names: dict[str, list[str]] = {}
    for name, notes in said:
        for note in dict.fromkeys(notes):
            names.setdefault(note, []).append(name)
    return [(", ".join(whom), note) for note, whom in names.items()]


@dataclass(frozen=True, eq=False)
class Entry:
    """One method in a comparison; seeds in the order of the study's, NaN where one diverged.

    Attributes:
        name: as the user wrote it.
        iteration: int64 [E], iterations done at each evaluation.
        curves: each of `metrics.curves.column_names`, float64 [E, S].
        final: each of them after the last iteration, on all test samples, float64 [S].
        energy_j: float64 [E, S], joules of all devices so far.
        time_s: float64 [E, S], seconds of the modelled clock so far.
        spent_j: float64 [S, N], joules that each battery paid.
        leftover_j: float64 [S, N], what stayed in it; negative where it is overdrawn.
        totals: float64 [S, 4] or [S, 6]: joules of training, of the radio, of a server; bits on
            the air; where they cost anything, the radio's for receiving, and joules at rest.
        notes: what a reader should know, one line each.
        infeasible: why the method cannot run at all; None if it can.
        diverged: the iteration in which each seed that diverged did so.
        samples: int64 [E, 2], or [0, 2] where it is not kept: on how many test samples each
            evaluation was made, and on how many of these devices were compared with the mean model.
        learning_rate: that it was trained with; NaN where that is not kept.
        tuned: how that rate was chosen; None if it is the scenario's.
        score: the metric that methods are compared by.
    """

    name: str
    iteration: NDArray[np.int64]
    curves: Mapping[str, FloatArray]
    final: Mapping[str, FloatArray]
    energy_j: FloatArray
    time_s: FloatArray
    spent_j: FloatArray
    leftover_j: FloatArray
    totals: FloatArray
    notes: tuple[str, ...] = ()
    infeasible: str | None = None
    diverged: Mapping[int, int] = field(default_factory=dict)
    samples: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    learning_rate: float = math.nan
    tuned: TunedRate | None = None
    score: str = "accuracy"

    @classmethod
    def refused(
        cls, name: str, why: str, seeds: int, devices: int, measured: Reported | None = None
    ) -> Entry:
        """The entry of a method that cannot run."""
        measured = measured or Reported()
        none, shape, names = np.zeros((0, seeds)), (seeds, devices), column_names(*measured)
        return cls(
            name,
            np.zeros(0, np.int64),
            dict.fromkeys(names, none),
            dict.fromkeys(names, np.full(seeds, np.nan)),
            none,
            none,
            np.full(shape, np.nan),
            np.full(shape, np.nan),
            np.full((seeds, 4), np.nan),
            infeasible=why,
            score=measured.score,
        )

    def __repr__(self) -> str:
        """In a few words."""
        if not self.ran:
            return f"Entry({self.name}: {self.status})"
        reached = f"{score_metric(self.score).label} {estimate(self.scores).mean:.4f}"
        return f"Entry({self.name}: {int(self.iteration[-1]):,} iterations, {reached})"

    @property
    def scores(self) -> FloatArray:
        """float64 [S]: what methods are compared by, after the last iteration."""
        return self.final[f"test_{self.score}"]

    @property
    def status(self) -> str:
        """``"ran"``, ``"infeasible"``, or ``"diverged"`` (at one seed at least)."""
        if self.infeasible is not None:
            return "infeasible"
        return "diverged" if self.diverged else "ran"

    @property
    def ran(self) -> bool:
        """Is there a run of at least one seed?"""
        return len(self.iteration) > 0

    @property
    def total_energy_j(self) -> FloatArray:
        """float64 [S]: joules of all batteries together."""
        return np.asarray(self.spent_j.sum(axis=1))

    @property
    def total_time_s(self) -> FloatArray:
        """float64 [S]: seconds of the whole run."""
        return self.time_s[-1] if self.ran else np.full(len(self.totals), np.nan)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, after those on how its learning rate was chosen."""
        return self.notes if self.tuned is None else (*self.tuned.notes, *self.notes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, with why it could not run and which seeds diverged before them."""
        if self.infeasible is not None:
            return (self.infeasible, *self.notes)
        notes = self.all_notes
        lost = [f"seed {seed} in iteration {when}" for seed, when in self.diverged.items()]
        if not lost:
            return notes
        rest = "; figures are of the other seeds" if self.ran else ""
        rate = self.learning_rate
        now = "" if math.isnan(rate) else f"; lower training.learning_rate (now {rate:g})"
        return (f"diverged: {', '.join(lost)}{rest}{now}", *notes)


@dataclass(frozen=True, eq=False)
class TunedRate:
    """How a method got its learning rate.

    Attributes:
        grid: the rates that were tried, ascending.
        seeds: on which.
        accuracy: float64 [rates, seeds]: final test accuracy of the mean model, or another score;
            NaN where training diverged.
        better: whether higher or lower figures are better.
        own: which value of a parameter of its own was chosen besides, in words; empty for none.

    The smaller of two as good; one that diverges at any seed loses.

    >>> reached = np.array([[0.5, 0.7], [0.7, 0.5], [0.9, np.nan]])
    >>> TunedRate((0.1, 0.2, 0.4), (7, 8), reached).chosen
    0.1
    """

    grid: tuple[float, ...]
    seeds: tuple[int, ...]
    accuracy: FloatArray
    better: Literal["higher", "lower"] = "higher"
    own: str = ""

    @property
    def _best(self) -> int:
        means = self.accuracy.mean(axis=1) * (1 if self.better == "higher" else -1)
        return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))

    @property
    def chosen(self) -> float:
        """The rate of the best mean score; the smallest one if all of them diverged."""
        return self.grid[self._best]

    @property
    def notes(self) -> tuple[str, ...]:
        """The choice in words, and what casts doubt on it."""
        best, count = self._best, len(self.seeds)
        seeds = "1 seed" if count == 1 else f"{count} seeds"
        low, high = f"{self.grid[0]:g}", f"{self.grid[-1]:g}"
        span = f"{len(self.grid)} from {low} to {high}, tried on {seeds} that no result uses"
        said = f"learning rate {self.chosen:g}, the best of {span}"
        if np.isnan(self.accuracy[best]).any():
            return (f"diverged at every learning rate ({span}): give smaller ones",)
        if len(self.grid) > 1 and best in (0, len(self.grid) - 1):
            end = "smallest" if best == 0 else "largest"
            said += f"; it is the {end} of them, so that a better one may lie beyond"
        return (said, self.own) if self.own else (said,)

    def lines(self) -> Iterator[tuple[float, int, float | str, bool]]:
        """Rate, seed, score ("" where it diverged), and whether the rate was chosen."""
        for rate, row in zip(self.grid, self.accuracy.tolist(), strict=True):
            for seed, value in zip(self.seeds, row, strict=True):
                yield rate, seed, "" if math.isnan(value) else value, rate == self.chosen


def across(entry: Entry, axis: str) -> NDArray[np.float64]:
    """[E]: where a method's evaluations stand on a horizontal axis, mean over seeds."""
    if axis == "iterations":
        return entry.iteration.astype(np.float64)
    costs = entry.energy_j if axis == "joules" else entry.time_s
    return np.asarray(np.nanmean(costs, axis=1))
