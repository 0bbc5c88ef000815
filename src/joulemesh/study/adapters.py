"""Other searches behind the seam of `Tuner`: Optuna, an optional package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.study.pricing import Priced
from joulemesh.study.search import Score, Trial

_RANK = 1e12  # between ranks of scores, which Optuna sees as one number


def optuna_tuner(trials: int = 20, seed: int = 0) -> Callable[[Sequence[Priced]], OptunaTuner]:
    """Let Optuna's sampler choose among the priced candidates.

    Args:
        trials: how many candidates are tried, each with the whole budget.
        seed: of the sampler.

    Returns:
        What `joulemesh.tune` takes as ``tuner``.

    Raises:
        MissingPackageError: Optuna is not installed.

    >>> optuna_tuner(0)
    Traceback (most recent call last):
    joulemesh.ScenarioError: trials = 0 is too few: use 1 or more
    """
    if trials < 1:
        raise ScenarioError(f"trials = {trials} is too few: use 1 or more")
    require("optuna", "this search", "'joulemesh[optuna]'")
    return lambda priced: OptunaTuner(priced, trials, seed)


class OptunaTuner:
    """Optuna's tree-structured Parzen estimator, over candidates that are known to be paid for."""

    # Optuna proposes values of the fields; the untried candidate nearest to them is tried, and it
    # is that candidate's own values that Optuna is told the score of. The first trial is the
    # scenario as it is, where that has a plan.

    def __init__(self, priced: Sequence[Priced], trials: int, seed: int) -> None:
        self._optuna = require("optuna", "this search", "'joulemesh[optuna]'")
        quiet = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._study = self._optuna.create_study(sampler=sampler, direction="minimize")
        self._optuna.logging.set_verbosity(quiet)
        self._points = [_values(one) for one in priced]
        names = list(dict.fromkeys(name for point in self._points for name in point))
        self._axes = {name: self._distribution(name) for name in names}
        self._untried = list(range(len(priced)))
        self._count, self._open = min(trials, len(priced)), False
        self._told: dict[int, Score | None] = {}

    def _distribution(self, name: str) -> Any:
        """Numbers on a logarithmic scale, all else as categories."""
        values = [point[name] for point in self._points if name in point]
        kinds = self._optuna.distributions
        if all(type(value) in (int, float) and value > 0 for value in values):
            low, high = float(min(values)), float(max(values))
            return kinds.FloatDistribution(low, high, log=True)
        return kinds.CategoricalDistribution(sorted(set(map(str, values))))

    @property
    def finished(self) -> bool:
        return len(self._told) >= self._count and not self._open

    @property
    def left(self) -> float:
        return float(self._count - len(self._told))

    def ask(self) -> Trial | None:
        if self._open or len(self._told) >= self._count:
            return None
        place = next((k for k in self._untried if not self._points[k]), None)
        if place is None:
            place = self._nearest(self._proposed())
        self._untried.remove(place)
        self._open = True
        return Trial(place, len(self._told), 1.0)

    def _proposed(self) -> Mapping[str, Any]:
        """What Optuna would try; the proposal itself is not tried, so it is closed."""
        trial = self._study.ask(self._axes)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        proposed: Mapping[str, Any] = trial.params
        return proposed

    def _nearest(self, wanted: Mapping[str, Any]) -> int:
        """The untried candidate nearest to some values: on each axis, by a share of its width."""

        def distance(place: int) -> float:
            point = self._points[place]
            return sum(self._apart(name, point.get(name), wanted[name]) for name in wanted)

        return min(self._untried, key=lambda place: (distance(place), place))

    def _apart(self, name: str, own: Any, wanted: Any) -> float:
        axis = self._axes[name]
        if own is None:
            return 0.5  # the scenario as it is does not say
        if not hasattr(axis, "low"):
            return 0.0 if str(own) == wanted else 1.0
        width = math.log(axis.high / axis.low) or 1.0
        return abs(math.log(float(own) / float(wanted))) / width

    def tell(self, trial: Trial, score: Score | None) -> None:
        if not self._open:
            raise ScenarioError(f"candidate {trial.candidate} was not asked for: ask first")
        self._open = False
        self._told[trial.candidate] = score
        point = self._points[trial.candidate]
        if score is None or len(point) < len(self._axes):
            return
        params = {
            name: float(point[name]) if hasattr(axis, "low") else str(point[name])
            for name, axis in self._axes.items()
        }
        made = self._optuna.trial.create_trial(
            params=params, distributions=self._axes, value=score.rank * _RANK + score.cost
        )
        self._study.add_trial(made)

    @property
    def best(self) -> int | None:
        judged = [(score, place) for place, score in self._told.items() if score is not None]
        return min(judged)[1] if judged else None


def _values(priced: Priced) -> dict[str, Any]:
    return dict(priced.candidate.changes)
