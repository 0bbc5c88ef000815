"""What a sweep is asked, and what each of its combinations will take before anything is trained."""

from __future__ import annotations

__all__ = ["MOST_RUNS", "Asked", "Outlook", "ask", "device_steps", "outlooks", "prepared"]

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import JoulemeshError, ScenarioError
from joulemesh.methods import Contender
from joulemesh.methods.terms import equal_terms
from joulemesh.metrics.losses import reported
from joulemesh.metrics.metric import score_metric
from joulemesh.results.target import check_target
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import Combination, Varied, combinations, labelled, varied_of
from joulemesh.studies.cache import Cache
from joulemesh.studies.compare import (
    Options,
    Prepared,
    chosen_seeds,
    method_names,
    prepare_comparison,
)
from joulemesh.training.draws import steps_per_round

MOST_RUNS = 100_000


@dataclass(frozen=True)
class Asked:
    """What a sweep is asked.

    Attributes:
        scenario: what is not varied.
        varied: the fields that are, each with its values as a scenario holds them.
        combinations: of their values, the last field varying fastest.
        methods: in the order asked for.
        equal: what is equal for all methods of a combination.
        seeds: repetition seeds, the same in every combination.
    """

    scenario: Scenario
    varied: tuple[Varied, ...]
    combinations: tuple[Combination, ...]
    methods: tuple[str, ...]
    equal: str
    seeds: tuple[int, ...]

    @property
    def runs(self) -> int:
        """How many runs there are in all: combinations × methods × seeds."""
        return len(self.combinations) * len(self.methods) * len(self.seeds)


@dataclass(frozen=True)
class Outlook:
    """What one combination will take, before anything is trained.

    Attributes:
        combination: which one.
        reason: why none of its methods can run; empty if one can.
        refused: is that the scenario's fault, not a budget's?
        runs: how many there are (methods that can run × seeds).
        missing: how many of them are not kept.
        steps_of: device-steps of those by method: SGD steps of all devices at all seeds.
        infeasible: why methods cannot run, by method.
    """

    combination: Combination
    reason: str = ""
    refused: bool = False
    runs: int = 0
    missing: int = 0
    steps_of: Mapping[str, int] = field(default_factory=dict)
    infeasible: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Device-steps of all methods."""
        return sum(self.steps_of.values())


def ask(
    scenario: Scenario,
    vary: Mapping[str, Any],
    methods: Sequence[str] | str,
    equal: str | None,
    seeds: int | Sequence[int],
    labels: Mapping[str, str] | None = None,
) -> Asked:
    """Check what a sweep is asked, and make every combination a scenario.

    Arguments are those of `joulemesh.sweep`.

    Raises:
        ScenarioError: a field, value, method or number that is wrong, or too many runs.

    >>> asked = ask(Scenario(), {"devices.count": "10,20"}, "adaptive,fixed:3", "batteries", 5)
    >>> asked.runs
    20
    """
    wanted, chosen = method_names(methods), chosen_seeds(scenario, seeds)
    given = varied_of(vary)
    runs = math.prod(len(one.values) for one in given) * len(wanted) * len(chosen)
    if runs > MOST_RUNS:
        raise ScenarioError(
            f"the sweep has {runs:,} runs, more than {MOST_RUNS:,}: give fewer values, methods or "
            "seeds"
        )
    labelled(given, labels or {})  # refused before anything is planned
    varied, made = combinations(scenario, given)
    varied = labelled(varied, labels or {})
    terms = equal_terms(equal, *(one.scenario for one in made if one.scenario is not None))
    return Asked(scenario, varied, made, wanted, terms, chosen)


def outlooks(
    asked: Asked, on_plan: Callable[[Combination], None] | None = None, **options: Unpack[Options]
) -> list[Outlook]:
    """Plan every combination, and look which of its runs are kept.

    Args:
        asked: the sweep.
        on_plan: called before each combination is planned.
        options: as in `joulemesh.compare`.

    Raises:
        ScenarioError: no combination can be planned at all; the text is the first one's reason.
    """
    check_target(options.get("target"), score_metric(reported(asked.scenario.training).score))
    Cache(options.get("cache")).require_usable()
    found = []
    for one in asked.combinations:
        if on_plan is not None:
            on_plan(one)
        found.append(_outlook(asked, one, options))
    if all(one.refused for one in found):
        raise ScenarioError(found[0].reason)
    return found


def _outlook(asked: Asked, one: Combination, options: Options) -> Outlook:
    try:
        ready = prepared(asked, one, options)
    except JoulemeshError as error:
        return Outlook(one, str(error), refused=True)
    works = {made.name: _work(made, ready) for made in ready.ready if not isinstance(made, str)}
    pairs = zip(ready.methods, ready.ready, strict=True)
    infeasible = {name: made for name, made in pairs if isinstance(made, str)}
    if not works:
        return Outlook(one, str(ready.ready[0]), infeasible=infeasible)
    return Outlook(
        one,
        runs=sum(work.runs for work in works.values()),
        missing=sum(work.missing for work in works.values()),
        steps_of={name: work.missing * work.steps for name, work in works.items()},
        infeasible=infeasible,
    )


class _Work(NamedTuple):
    """What a method has to train: runs in all, runs that are not kept, device-steps of each."""

    runs: int
    missing: int
    steps: int


def _work(made: Contender, ready: Prepared) -> _Work:
    training = ready.bench.setting.scenario.training
    steps = int(device_steps(made, ready).sum())
    runs = len(ready.seeds) + len(ready.rates) * len(ready.tuned_on)
    rate = training.learning_rate
    if ready.rates:
        grid = ready.bench.grid_of(made, ready.rates)
        tried = [ready.bench.missing(made, ready.tuned_on, rate, trial=True) for rate in grid]
        more = len(made.variants) * len(ready.tuned_on)
        # The rate of the result, and of variants, is not known before all have been tried.
        if more or any(tried):
            return _Work(runs, sum(tried) + more + len(ready.seeds), steps)
        rate = ready.bench.tuned(made, ready.rates, ready.tuned_on, _deaf)[1].chosen
    return _Work(runs, ready.bench.missing(made, ready.seeds, rate), steps)


def device_steps(made: Contender, ready: Prepared) -> NDArray[np.int64]:
    """int64 [n]: SGD steps of all devices in each iteration of one run."""
    training = ready.bench.setting.scenario.training
    samples = np.asarray(ready.bench.setting.work.round_samples)
    each = steps_per_round(samples, training.batch_size, training.local_round)
    return np.asarray((made.schedule.rounds * each).sum(axis=1))


def _deaf(done: int, accuracy: float, cached: int, *, rate: float | None) -> None:
    """Hear of nothing."""


def prepared(asked: Asked, one: Combination, options: Options) -> Prepared:
    """A combination's comparison, with nothing trained yet.

    Raises:
        JoulemeshError: its values do not go together, or cannot be planned.
    """
    if one.scenario is None:
        raise ScenarioError(one.reason)
    return prepare_comparison(one.scenario, asked.methods, asked.equal, asked.seeds, **options)
