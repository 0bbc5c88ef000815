"""Train a method at some seeds, unless that has been done before."""

from __future__ import annotations

__all__ = ["Bench", "Tell"]

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from joulemesh.methods import Contender, Setting
from joulemesh.metrics.curves import score_place
from joulemesh.metrics.losses import reported
from joulemesh.metrics.metric import score_metric
from joulemesh.results.rate import TunedRate
from joulemesh.studies.cache import Cache
from joulemesh.studies.contest import Contest, Learning
from joulemesh.studies.fingerprint import run_key
from joulemesh.studies.record import Record


class Tell(Protocol):
    """Hears how far a training has come."""

    def __call__(self, done: int, accuracy: float, cached: int, *, rate: float | None) -> None:
        """Hear of it.

        Args:
            done: iterations.
            accuracy: latest, or another score, of the mean model; NaN before the first.
            cached: seeds that were found in the cache.
            rate: the learning rate that is tried; None for the runs of the result.
        """


@dataclass(frozen=True)
class Bench:
    """What all methods of a comparison are trained with.

    Attributes:
        setting: the terms.
        learning: model and data.
        store: the runs that are kept.
        digest: of data, model and world.
    """

    setting: Setting
    learning: Learning
    store: Cache
    digest: str

    def results(
        self, made: Contender, seeds: tuple[int, ...], tell: Tell, rate: float
    ) -> tuple[dict[int, Record], int]:
        """The runs of one method at one learning rate, and how many of them were trained now."""
        return self._runs(made, seeds, rate, tell, trial=False)

    def tuned(
        self, made: Contender, grid: tuple[float, ...], seeds: tuple[int, ...], tell: Tell
    ) -> tuple[TunedRate, int]:
        """The learning rate of one method, and how many runs were trained to find it."""
        scores, computed = np.full((len(grid), len(seeds)), np.nan), 0
        score = reported(self.learning.scenario.training).score
        for row, rate in enumerate(grid):
            found, new = self._runs(made, seeds, rate, tell, trial=True)
            scores[row] = [found[seed].final[score_place(score)] for seed in seeds]
            computed += new
        return TunedRate(grid, seeds, scores, score_metric(score).better), computed

    def missing(
        self, made: Contender, seeds: tuple[int, ...], rate: float, *, trial: bool = False
    ) -> int:
        """How many runs of one method at one learning rate are not kept."""
        keys = self._keys(made, seeds, rate, trial=trial)
        return sum(self.store.find(key) is None for key in keys.values())

    def _keys(
        self, made: Contender, seeds: tuple[int, ...], rate: float, *, trial: bool
    ) -> dict[int, str | None]:
        key_of = partial(run_key, self.setting, made, learned=self.digest, rate=rate, trial=trial)
        return {seed: key_of(seed=seed) for seed in seeds}

    def _runs(
        self, made: Contender, seeds: tuple[int, ...], rate: float, tell: Tell, *, trial: bool
    ) -> tuple[dict[int, Record], int]:
        """Those kept, and the rest, trained together and kept."""
        keys = self._keys(made, seeds, rate, trial=trial)
        kept = {s: record for s, k in keys.items() if (record := self.store.find(k)) is not None}
        missing = tuple(seed for seed in seeds if seed not in kept)
        tried = rate if trial else None
        if missing:
            contest = Contest(
                self._at(rate), made, self.setting, self.store.unfinished, keys, final_only=trial
            )
            before = len(kept)
            for seed, record in contest.train(missing, lambda t, a: tell(t, a, before, rate=tried)):
                self.store.keep(keys[seed], record)
                kept[seed] = record
            contest.forget()
        tell(made.schedule.iterations, math.nan, len(seeds) - len(missing), rate=tried)
        return {seed: kept[seed] for seed in seeds}, len(missing)

    def _at(self, rate: float) -> Learning:
        """The same, learned at another rate."""
        scenario = self.learning.scenario
        if rate == scenario.training.learning_rate:
            return self.learning
        return replace(self.learning, scenario=scenario.override({"training.learning_rate": rate}))
