"""The plan space: which fields of a scenario are varied, and over which values."""

from __future__ import annotations

import difflib
import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import duration, energy
from joulemesh.metrics import Metric, score_metric
from joulemesh.models.curves import score_place
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import fields_of
from joulemesh.scenario.scenario import field_names
from joulemesh.study.record import Record
from joulemesh.study.statistics import reached_at

GRID = "grid"
"""In place of values of ``plan.iterations``: a geometric grid up to what the budgets pay for."""
_GRID_POINTS = 5
_LEAST_ITERATIONS = 10  # a tenth of the budget is then one iteration
_RATES = (0.5, 1.0, 2.0, 4.0)  # times the scenario's own learning rate
_MOST_POINTS = 100_000

# Fields that decide the plan or the way of learning, but neither the task nor the budgets.
TUNABLE = (
    "plan.aggregation",
    "plan.exchange",
    "plan.rounds",
    "plan.zeta",
    "plan.iterations",
    "plan.fixed_rounds",
    "plan.epsilon",
    "plan.gossip_rounds",
    "plan.gossip_mode",
    "plan.bits",
    "training.learning_rate",
    "training.batch_size",
    "training.optimizer",
    "training.weights",
)
_REFUSED = {
    "network.bits_per_parameter": "messages have 16 bits or 32; tune the scenario with each",
}


@dataclass(frozen=True)
class Axis:
    name: str  # of the field, for instance `"plan.rounds"`
    # that it takes, the first of them first; one may be the word `"grid"`, for `plan.iterations`
    # only
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if self.name not in TUNABLE:
            raise ScenarioError(_not_tunable(self.name))
        if not self.values:
            raise ScenarioError(f"{self.name} has no values to try: give at least one")
        if GRID in self.values and self.name != "plan.iterations":
            raise ScenarioError(f'{self.name}: "grid" is for plan.iterations; list the values')


def _not_tunable(name: str) -> str:
    if name in _REFUSED:
        return f"{name} cannot be tuned: {_REFUSED[name]}"
    if name in field_names():
        return f"{name} is part of the task, not of the plan; tune some of {', '.join(TUNABLE)}"
    near = difflib.get_close_matches(name, TUNABLE, 1)
    known = f"did you mean {near[0]!r}?" if near else f"tune some of {', '.join(TUNABLE)}"
    return f"{name[:60]!r} cannot be tuned: {known}"


@dataclass(frozen=True)
class Space:
    """All combinations of the values of some axes, of which the last varies fastest.

    >>> space = Space.of({"plan.rounds": ["theorem4", "uniform"], "training.learning_rate": 0.1})
    >>> [point["plan.rounds"] for point in space.points()]
    ['theorem4', 'uniform']
    """

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Space:
        """A space from values by field; a single value is a list of one."""
        axes = [Axis(name, _listed(value)) for name, value in values.items()]
        if not axes:
            raise ScenarioError("the space has no axes: give at least one field with values")
        missing = [axis.name for axis in axes if axis.name not in field_names()]
        if missing:
            raise ScenarioError(f"{missing[0]} is not a field of a scenario of this version")
        size = math.prod(len(axis.values) for axis in axes)
        if size > _MOST_POINTS:
            raise ScenarioError(
                f"the space has {size:,} points, more than {_MOST_POINTS:,}; give fewer values"
            )
        return cls(tuple(axes))

    @classmethod
    def load(cls, path: str | Path) -> Space:
        """A space from a TOML file, written like a scenario with lists of values in it."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_bytes().decode())
        except OSError as error:
            raise ScenarioError(f"cannot read {path}: {error.strerror}; check the name") from None
        except ValueError as error:
            said = " ".join(str(error).split())[:160]
            raise ScenarioError(f"{path} is not a TOML file ({said}); see --space") from None
        return cls.of(fields_of(values))

    @classmethod
    def default(cls, scenario: Scenario) -> Space:
        """The axes of `AXES` whose fields there are, around a scenario.

        >>> [axis.name for axis in Space.default(Scenario()).axes][-2:]
        ['plan.iterations', 'training.learning_rate']
        """
        known = field_names()
        made = {name: values(scenario) for name, values in AXES.items() if name in known}
        return cls.of({name: values for name, values in made.items() if values})

    def with_axes(self, values: Mapping[str, Any]) -> Space:
        """The same space with some axes added or replaced."""
        return Space.of({axis.name: axis.values for axis in self.axes} | dict(values))

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination, in order; ``plan.iterations`` may still be ``"grid"``."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Values by field, as plain lists."""
        return {axis.name: list(axis.values) for axis in self.axes}


def _listed(value: Any) -> tuple[Any, ...]:
    given = value if isinstance(value, list | tuple) else [value]
    return tuple({repr(one): one for one in given}.values())  # a value may be a table


def _schemes(scenario: Scenario) -> list[str]:
    """The exact schemes that work in chunks, and what the scenario asks for."""
    chunked = [kind.name for kind in SCHEMES if kind.exact and kind.name.endswith("-chunked")]
    return [*chunked, scenario.plan.aggregation]


def _policies(scenario: Scenario) -> list[str]:
    """Rounds that may be zero, where there are such, and what the scenario asks for."""
    return ["spread", scenario.plan.rounds]


def _rates(scenario: Scenario) -> list[float]:
    own = scenario.training.learning_rate
    return [float(f"{factor * own:.6g}") for factor in _RATES]


def _exchanges(scenario: Scenario) -> list[Any]:
    """An exact mean in every iteration, or neighbours with one now and then; and the scenario's."""
    own = scenario.model_dump(mode="json", exclude_none=True)["plan"]["exchange"]
    return ["exact", {"every": 10, "final": True}, *([] if own == "exact" else [own])]


AXES: dict[str, Callable[[Scenario], list[Any]]] = {
    "plan.aggregation": _schemes,
    "plan.exchange": _exchanges,
    "plan.rounds": _policies,
    "plan.iterations": lambda scenario: [GRID],
    "training.learning_rate": _rates,
}
"""The default space: fields, and their values for a scenario. A field that this version of the
scenario does not have is left out."""


def geometric(longest: int, own: int | None) -> list[int]:
    """Numbers of iterations to try: a geometric grid up to the longest that is paid for."""
    least = longest // 16 if own is None else min(own // 2, longest // 2)
    low = max(1, min(longest, max(_LEAST_ITERATIONS, least)))
    grid = np.floor(np.geomspace(low, longest, _GRID_POINTS) * (1 + 1e-12)).astype(int)
    return sorted(set(grid.tolist()))


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
    """What is to be best: the score at the end, or what it takes to reach a target.

    >>> Objective.parse("energy-to:0.8")
    Objective(kind='energy-to', target=0.8, by='accuracy')
    >>> Objective.parse("time-to:80")
    Traceback (most recent call last):
    joulemesh.ScenarioError: objective time-to:80: the target is an accuracy, above 0 and ...
    """

    # the score of the mean model at the end, or joules of all devices or seconds to the target
    kind: Literal["score", "energy-to", "time-to"] = "score"
    target: float | None = None  # a score; None for "score"
    by: str = "accuracy"  # the metric that is the score

    @classmethod
    def parse(cls, text: str, by: str = "accuracy") -> Objective:
        """The objective that a text names: ``score``, ``energy-to:0.8`` or ``time-to:0.8``."""
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
    """Final score of the mean model of every run; NaN for one that diverged."""
    return np.array([run.final[score_place(by)] for run in runs], np.float64)


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
    """How many of a rung's candidates go on: one of ``keep``, rounded up, and no fewer than two."""
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
