"""Compare methods at every combination of some fields' values.

Every combination is a comparison of its own: planned, trained and kept as `joulemesh.compare` does
it, with the same repetition seeds everywhere. A combination that has no plan is a row that says
why, and the others go on.
"""

from __future__ import annotations

__all__ = [
    "MOST_RUNS",
    "Asked",
    "Outlook",
    "Pace",
    "Progress",
    "ask",
    "device_steps",
    "outlooks",
    "prepared",
    "seconds_left",
    "sweep_scenario",
    "timed",
]

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.methods import Contender
from joulemesh.methods.setting import equal_terms
from joulemesh.metrics import reported, score_metric
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import Combination, Varied, combinations, labelled, varied_of
from joulemesh.study.bench import (
    Options,
    Prepared,
    method_names,
    prepare_comparison,
)
from joulemesh.study.bench import Progress as Step
from joulemesh.study.contest import Contest
from joulemesh.study.identity import chosen_seeds
from joulemesh.study.record import Cache
from joulemesh.study.sweep_result import Point, Sweep
from joulemesh.study.target import check_target
from joulemesh.training.draws import steps_per_round
from joulemesh.training.driver import chunks
from joulemesh.training.learner import Learner


@dataclass(frozen=True)
class Progress:
    """How far a sweep has come.

    Attributes:
        position: number of the combination at work, from 0.
        combinations: how many there are.
        share: of the device-steps that were missing at the beginning, what is done.
        step: the comparison's own progress.
    """

    position: int
    combinations: int
    share: float
    step: Step


OnProgress = Callable[[Progress], None]
OnPoint = Callable[[Sequence[Point]], None]


def sweep_scenario(
    asked: Asked,
    ahead: Sequence[Outlook],
    on_progress: OnProgress | None = None,
    on_point: OnPoint | None = None,
    **options: Unpack[Options],
) -> Sweep:
    """Train what is missing, combination by combination.

    Args:
        asked: the sweep.
        ahead: what `outlooks` found.
        on_progress: called after every chunk of iterations.
        on_point: called after every combination, with all points so far.
        options: as in `joulemesh.compare`.

    Returns:
        The sweep.
    """
    points: list[Point] = []
    computed = 0
    rates: tuple[float, ...] = ()
    libraries: dict[str, None] = {}
    for one, tell in zip(ahead, _tellers(ahead, on_progress), strict=True):
        at = one.combination.at
        if one.refused:
            points.append(Point.without_runs(at, asked.methods, asked.seeds, one.reason))
        else:
            found = prepared(asked, one.combination, options).carry_out(tell)
            computed, rates = computed + found.computed, found.rates
            libraries[found.library] = None
            points.append(Point.found(at, found))
        if on_point is not None:
            on_point(points)
    return Sweep(
        asked.scenario,
        asked.varied,
        asked.methods,
        asked.equal,
        asked.seeds,
        tuple(points),
        options.get("target"),
        computed,
        rates,
        libraries=tuple(libraries) or ("jax",),
    )


def _tellers(
    ahead: Sequence[Outlook], on_progress: OnProgress | None
) -> Iterator[Callable[[Step], None]]:
    """For each combination, who hears of its methods and tells how far the whole sweep is."""
    whole, before = max(1, sum(one.steps for one in ahead)), 0
    for position, one in enumerate(ahead):

        def tell(step: Step, k: int = position, begun: int = before, own: int = one.steps) -> None:
            if on_progress is not None:
                within = step.completed / step.iterations if step.iterations else 1.0
                share = (begun + own * (step.position + within) / step.methods) / whole
                on_progress(Progress(k, len(ahead), min(share, 1.0), step))

        yield tell
        before += one.steps


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


_REPEATS = 5  # of a chunk, unless they take long:
_ENOUGH_S = 0.5


@dataclass(frozen=True)
class Pace:
    """How fast this machine trains one method.

    Attributes:
        compile_s: seconds before the first iteration of a program that was not compiled before;
            none where a method before it in the list has the same program.
        step_s: seconds of a device-step, with its share of exchanges and evaluations.
    """

    compile_s: float
    step_s: float


def timed(asked: Asked, ahead: Sequence[Outlook], **options: Unpack[Options]) -> dict[str, Pace]:
    """Train the first chunk of every method that has runs missing, and keep nothing of it.

    Methods differ in what surrounds a step: one that exchanges after every step takes many times
    as long for it as one that exchanges after twenty. They share compiled programs, too.

    Args:
        asked: the sweep.
        ahead: what its combinations take.
        options: as in `joulemesh.compare`.

    Returns:
        By method; empty if nothing is missing.
    """
    found: dict[str, Pace] = {}
    for one in ahead:
        untimed = {name for name, steps in one.steps_of.items() if steps} - found.keys()
        if not untimed:
            continue
        ready = prepared(asked, one.combination, options)
        for made in ready.ready:
            if not isinstance(made, str) and made.name in untimed:
                found[made.name] = _pace(made, ready)
    return found


def _pace(made: Contender, ready: Prepared) -> Pace:
    contest = Contest(ready.bench.learning, made, ready.bench.setting)
    learner: Learner[Any] = contest.learner(ready.seeds)
    took: list[float] = []
    while len(took) < 2 or (len(took) <= _REPEATS and sum(took[1:]) < _ENOUGH_S):
        begun = time.perf_counter()
        state, _ = next(chunks(learner))
        np.asarray(state.iteration)  # waits for what is under way
        took.append(time.perf_counter() - begun)
    chunk_s = statistics.median(took[1:])  # the first time it is compiled
    steps = len(ready.seeds) * int(device_steps(made, ready)[: int(state.iteration)].sum())
    return Pace(max(0.0, took[0] - chunk_s), chunk_s / max(steps, 1))


def seconds_left(ahead: Sequence[Outlook], paces: Mapping[str, Pace]) -> float:
    """Seconds that the runs take that are missing: compiling each shape once, then training.

    Args:
        ahead: what its combinations take.
        paces: of this machine, by method.
    """
    shapes = {(name, _shape(one)) for one in ahead for name, steps in one.steps_of.items() if steps}
    compiling_s = sum(paces[name].compile_s for name, _ in shapes)
    training_s = sum(
        paces[name].step_s * steps for one in ahead for name, steps in one.steps_of.items() if steps
    )
    return compiling_s + training_s


def _shape(one: Outlook) -> tuple[Any, ...]:
    """What a compiled program depends on, as far as a sweep usually varies it."""
    scenario = one.combination.scenario
    assert scenario is not None
    training = scenario.training
    return scenario.devices.count, training.model, training.hidden, training.batch_size
