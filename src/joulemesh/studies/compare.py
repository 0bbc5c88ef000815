"""Compare methods on one scenario: the same world, data and seeds, and what is equal for all."""

from __future__ import annotations

__all__ = ["DEFAULT_METHODS", "Progress", "compare_methods"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.data import Dataset, partition_for
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.methods import Contender, Setting, build, names, split
from joulemesh.results.comparison import Comparison
from joulemesh.results.entry import Entry
from joulemesh.results.target import check_target
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import the_dataset, the_model
from joulemesh.studies.bench import Bench, Tell
from joulemesh.studies.cache import Cache
from joulemesh.studies.contest import Learning
from joulemesh.studies.entries import entry_of
from joulemesh.studies.fingerprint import data_digest, model_digest, world_digest
from joulemesh.studies.rates import TUNING_SEEDS, Rates, rates_of, tuning_seeds
from joulemesh.training.jax.platform import configure

DEFAULT_METHODS = (
    "adaptive",
    "fixed:3",
    "inverse",
    "gossip-learning",
    "balanced",
    "pens",
    "d-psgd",
)


@dataclass(frozen=True)
class Progress:
    """How far a comparison has come.

    Attributes:
        method: the one at work.
        position: its number, from 0.
        methods: how many there are.
        completed: iterations of it done; all of them when nothing was left to compute.
        iterations: iterations of it in all; 0 for a method that cannot run.
        accuracy: latest test accuracy of the mean model, mean over seeds; NaN before the first.
        cached: seeds of it that were found in the cache.
        energy_j: joules that its devices have spent so far (at most, if that depends on the
            weights); NaN for a method that cannot run.
        world: number of the world, from 0.
        worlds: how many there are.
        rate: the learning rate that is being tried; None for the runs of the result.
    """

    method: str
    position: int
    methods: int
    completed: int
    iterations: int
    accuracy: float
    cached: int
    energy_j: float = math.nan
    world: int = 0
    worlds: int = 1
    rate: float | None = None


OnProgress = Callable[[Progress], None]


def compare_methods(
    scenario: Scenario,
    methods: Sequence[str] | str = DEFAULT_METHODS,
    equal: str = "batteries",
    seeds: int | Sequence[int] = 5,
    *,
    model: Any = None,
    data: Any = None,
    target: float | None = None,
    tune_lr: Rates = None,
    tune_seeds: int = TUNING_SEEDS,
    cache: str | Path | None = None,
    on_progress: OnProgress | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Comparison:
    """Train every method at every seed, unless that has been done before, and put them together.

    Arguments and behaviour are those of `joulemesh.compare`.
    """
    wanted, chosen = _methods(methods), _seeds(scenario, seeds)
    check_target(target)
    rates = rates_of(scenario, tune_lr)
    tuned_on = tuning_seeds(scenario, tune_seeds, chosen) if rates else ()
    stage = on_stage or (lambda words: None)
    configure()
    stage("loading data")
    dataset = the_dataset(scenario, data)
    learner = the_model(scenario, model, dataset)
    stage("planning")
    if data is not None:
        scenario = _sized(scenario, dataset)
    setting = Setting(scenario, equal, chosen, model=learner, data=dataset)
    ready = [_ready(name, setting) for name in wanted]  # a wrong name must not cost an hour first
    learning = Learning(scenario, learner, dataset)
    digest = data_digest(dataset) + model_digest(learner, dataset.shape) + world_digest(setting)
    store, entries, computed = Cache(cache), [], 0
    store.require_usable()
    bench, further = Bench(setting, learning, store, digest), scenario.training.metrics
    for position, (name, made) in enumerate(zip(wanted, ready, strict=True)):
        turn = _Turn(name, position, len(wanted), on_progress)
        if isinstance(made, str):
            entries.append(Entry.refused(name, made, len(chosen), setting.devices, further))
            turn.cannot_run()
            continue
        entry, new = _entry(made, bench, chosen, rates, tuned_on, turn)
        computed += new
        entries.append(entry)
    return Comparison(
        scenario,
        equal,
        chosen,
        tuple(entries),
        target,
        computed,
        dataset.notes,
        dataset.name,
        learner.name,
        learner.parameters,
        rates,
        tuned_on,
    )


def _methods(methods: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(methods, str):
        methods = [name for part in methods.split(";") for name in split(part)]
    wanted = tuple(name.strip() for name in methods)
    if not wanted:
        raise ScenarioError(f"no method is given: name some of {', '.join(names())}")
    for index, name in enumerate(wanted):
        if name.partition(":")[0] not in names():
            raise ScenarioError(
                f"method {name.partition(':')[0]!r} is unknown: use some of {', '.join(names())}"
            )
        if name in wanted[:index]:
            raise ScenarioError(f"method {name!r} is given twice: give it once")
    return wanted


def _seeds(scenario: Scenario, seeds: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        seeds = range(scenario.seed, scenario.seed + seeds)
    chosen = tuple(int(seed) for seed in seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ScenarioError(f"seeds are {list(chosen)}: give different numbers from 0, at least 1")
    return chosen


def _sized(scenario: Scenario, dataset: Dataset) -> Scenario:
    """Where a round is an epoch, say how many samples of the user's own data each device holds."""
    training = scenario.training
    if training.local_round != "epoch" or scenario.devices.samples != "partition":
        return scenario
    held = partition_for(scenario, dataset, scenario.seed)
    return scenario.override({"devices.samples": {"values": held.sizes.tolist()}})


def _ready(name: str, setting: Setting) -> Contender | str:
    """The method made ready, or why it cannot run."""
    try:
        return build(name, setting)
    except InfeasibleError as error:
        return str(error)


@dataclass(frozen=True)
class _Turn:
    """A method's turn, and who hears of it."""

    name: str
    position: int
    methods: int
    on_progress: OnProgress | None

    def cannot_run(self) -> None:
        self._tell(0, 0, math.nan, 0)

    def teller(self, made: Contender) -> Tell:
        """Tells of the method's trainings."""
        spent_j = np.append(0.0, np.cumsum(made.reserve.energy_j.sum(axis=1)))

        def tell(done: int, accuracy: float, cached: int, *, rate: float | None) -> None:
            n, joules = made.schedule.iterations, float(spent_j[done])
            self._tell(done, n, accuracy, cached, energy_j=joules, rate=rate)

        return tell

    def _tell(self, *figures: Any, **more: Any) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(self.name, self.position, self.methods, *figures, **more))


def _entry(
    made: Contender,
    bench: Bench,
    seeds: tuple[int, ...],
    rates: tuple[float, ...],
    tuned_on: tuple[int, ...],
    turn: _Turn,
) -> tuple[Entry, int]:
    """One method's entry, and how many runs were trained for it."""
    tell, rate = turn.teller(made), bench.setting.scenario.training.learning_rate
    tuned, tried = None, 0
    if rates:
        tuned, tried = bench.tuned(made, rates, tuned_on, tell)
        rate = tuned.chosen
    found, new = bench.results(made, seeds, tell, rate)
    entry = entry_of(
        made.name, found, made.battery_j, made.notes, bench.learning.scenario.training.metrics
    )
    return replace(entry, learning_rate=rate, tuned=tuned), tried + new
