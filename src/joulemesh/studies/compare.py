"""Compare methods on one scenario: the same world, data and seeds, and what is equal for all."""

from __future__ import annotations

__all__ = [
    "DEFAULT_METHODS",
    "Options",
    "Prepared",
    "Progress",
    "chosen_seeds",
    "compare_methods",
    "method_names",
    "prepare_comparison",
]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from joulemesh.data import Dataset, partition_for
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.methods import Contender, Setting, build, names, split
from joulemesh.metrics.losses import reported
from joulemesh.metrics.metric import score_metric
from joulemesh.results.chance import chance_note
from joulemesh.results.comparison import Comparison
from joulemesh.results.entry import Entry
from joulemesh.results.target import check_target
from joulemesh.scenario import Scenario
from joulemesh.setup.outputs import with_outputs_noted
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
    equal: str | None = None,
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
    prepared = prepare_comparison(
        scenario,
        methods,
        equal,
        seeds,
        model=model,
        data=data,
        target=target,
        tune_lr=tune_lr,
        tune_seeds=tune_seeds,
        cache=cache,
        on_stage=on_stage,
    )
    return prepared.carry_out(on_progress)


class Options(TypedDict, total=False):
    """Those of `joulemesh.compare` that decide how methods are trained and judged."""

    model: Any
    data: Any
    target: float | None
    tune_lr: Rates
    tune_seeds: int
    cache: str | Path | None
    on_stage: Callable[[str], None] | None


def prepare_comparison(
    scenario: Scenario,
    methods: Sequence[str] | str,
    equal: str | None,
    seeds: int | Sequence[int],
    **options: Unpack[Options],
) -> Prepared:
    """Load the data, plan every method, and train nothing yet.

    Arguments are those of `joulemesh.compare`.

    Raises:
        ScenarioError: what is asked is wrong.
    """
    wanted, chosen = method_names(methods), chosen_seeds(scenario, seeds)
    data, target = options.get("data"), options.get("target")
    check_target(target, score_metric(reported(scenario.training).score))
    rates = rates_of(scenario, options.get("tune_lr"))
    tune_seeds = options.get("tune_seeds", TUNING_SEEDS)
    tuned_on = tuning_seeds(scenario, tune_seeds, chosen) if rates else ()
    stage = options.get("on_stage") or (lambda words: None)
    configure()
    stage("loading data")
    dataset = the_dataset(scenario, data)
    learner = the_model(scenario, options.get("model"), dataset)
    before = len(dataset.notes)
    dataset = with_outputs_noted(scenario, learner, options.get("model"), dataset)
    for note in dataset.notes[before:]:
        stage(f"note: {note}")
    stage("planning")
    if data is not None:
        scenario = _sized(scenario, dataset)
    setting = Setting(scenario, equal, chosen, model=learner, data=dataset)
    ready = tuple(_ready(name, setting) for name in wanted)  # a wrong name must not cost an hour
    learning = Learning(scenario, learner, dataset)
    digest = data_digest(dataset) + model_digest(learner, dataset) + world_digest(setting)
    store = Cache(options.get("cache"))
    store.require_usable()
    bench = Bench(setting, learning, store, digest)
    return Prepared(bench, wanted, ready, chosen, target, rates, tuned_on)


@dataclass(frozen=True)
class Prepared:
    """A comparison in which everything is decided and nothing is trained.

    Attributes:
        bench: what all methods are trained with.
        methods: as the user wrote them.
        ready: each of them made ready, or why it cannot run.
        seeds: repetition seeds.
        target: the accuracy asked for; None for 95 % of the best.
        rates: the learning rates that are tried; empty without tuning.
        tuned_on: the seeds on which they are tried.
    """

    bench: Bench
    methods: tuple[str, ...]
    ready: tuple[Contender | str, ...]
    seeds: tuple[int, ...]
    target: float | None
    rates: tuple[float, ...]
    tuned_on: tuple[int, ...]

    def carry_out(self, on_progress: OnProgress | None = None) -> Comparison:
        """Train what is not kept, and put all methods side by side."""
        setting, learning = self.bench.setting, self.bench.learning
        entries, computed = [], 0
        for position, (name, made) in enumerate(zip(self.methods, self.ready, strict=True)):
            turn = _Turn(name, position, len(self.methods), on_progress)
            if isinstance(made, str):
                measured = reported(setting.scenario.training)
                refused = Entry.refused(name, made, len(self.seeds), setting.devices, measured)
                entries.append(refused)
                turn.cannot_run()
                continue
            entry, new = _entry(made, self.bench, self.seeds, self.rates, self.tuned_on, turn)
            computed += new
            entries.append(entry)
        return Comparison(
            setting.scenario,
            setting.equal,
            self.seeds,
            tuple(entries),
            self.target,
            computed,
            learning.dataset.notes,
            learning.dataset.name,
            learning.model.name,
            learning.model.parameters,
            self.rates,
            self.tuned_on,
            library=learning.model.library,
        )


def method_names(methods: Sequence[str] | str) -> tuple[str, ...]:
    """The methods of a list, or of a text with commas, each known and none twice."""
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


def chosen_seeds(scenario: Scenario, seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The repetition seeds: those given, or as many as wanted from the scenario's on."""
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
        made, tuned, tried = bench.tuned(made, rates, tuned_on, tell)
        rate = tuned.chosen
    found, new = bench.results(made, seeds, tell, rate)
    measured = reported(bench.learning.scenario.training)
    entry = entry_of(turn.name, found, made.battery_j, made.notes, measured)
    entry = replace(entry, learning_rate=rate, tuned=tuned)
    return replace(entry, notes=(*_chance(entry, bench.learning), *entry.notes)), tried + new


def _chance(entry: Entry, learning: Learning) -> tuple[str, ...]:
    """That a method ends no better than guessing, if it does."""
    if not entry.ran:
        return ()
    training = learning.scenario.training
    losses, rate = entry.final["test_loss"], entry.learning_rate
    said = chance_note(learning.dataset, training, entry.score, entry.scores, losses, rate)
    return (said,) if said else ()
