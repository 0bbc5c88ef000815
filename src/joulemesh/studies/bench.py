"""Train a method at some seeds, unless that has been done before."""

from __future__ import annotations

__all__ = ["Bench", "Tell"]

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from joulemesh.methods import Contender, Setting, build
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

    @staticmethod
    def grid_of(made: Contender, grid: tuple[float, ...]) -> tuple[float, ...]:
        """The learning rates that are tried of a method.

        A method that tries values of another parameter, too, tries as many rates less, the largest
        first: all methods are tuned with the same effort.
        """
        return grid[: max(1, len(grid) - len(made.variants))]

    def tuned(
        self, made: Contender, grid: tuple[float, ...], seeds: tuple[int, ...], tell: Tell
    ) -> tuple[Contender, TunedRate, int]:
        """One method as it does best, its learning rate, and how many runs were trained for that.

        Its variants are tried at the rate that suits the method as it is.
        """
        score = reported(self.learning.scenario.training).score
        better, grid = score_metric(score).better, self.grid_of(made, grid)

        def reached(one: Contender, rate: float) -> tuple[list[float], int]:
            found, new = self._runs(one, seeds, rate, tell, trial=True)
            return [found[seed].final[score_place(score)] for seed in seeds], new

        tried = [reached(made, rate) for rate in grid]
        rates = TunedRate(grid, seeds, np.array([row for row, _ in tried]), better)
        others = [build(name, self.setting) for name in made.variants]
        more = [reached(one, rates.chosen) for one in others]
        computed = sum(new for _, new in (*tried, *more))
        if not others:
            return made, rates, computed
        every = np.array([tried[grid.index(rates.chosen)][0], *(row for row, _ in more)])
        sign = 1.0 if better == "higher" else -1.0
        means = np.nan_to_num(sign * every.mean(axis=1), nan=-np.inf)
        best = int(np.argmax(means))  # of two as good, the method as it is
        words = "as it is" if best == 0 else made.variants[best - 1]
        own = f"{words}, the best of it and {', '.join(made.variants)} at that learning rate"
        # A variant keeps its own name, under which its runs are kept.
        return (made, *others)[best], replace(rates, own=own), computed

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
