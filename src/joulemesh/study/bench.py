"""Compare methods on one scenario: the same world, data and seeds, and what is equal for all."""

from __future__ import annotations

__all__ = [
    "DEFAULT_METHODS",
    "TUNING_SEEDS",
    "Bench",
    "Options",
    "Prepared",
    "Progress",
    "Rates",
    "Tell",
    "compare_methods",
    "compare_worlds",
    "method_names",
    "prepare_comparison",
    "rates_of",
    "tuning_seeds",
]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.data import Dataset, partition_for
from joulemesh.methods import Contender, Setting, build, names, split
from joulemesh.metrics import reported, score_metric
from joulemesh.models.curves import score_place
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.comparison_worlds import WorldsComparison
from joulemesh.study.contest import Contest, Learning
from joulemesh.study.entry import Entry, TunedRate
from joulemesh.study.identity import (
    chosen_seeds,
    data_digest,
    model_digest,
    run_key,
    world_digest,
)
from joulemesh.study.record import Cache, Record, entry_of
from joulemesh.study.target import chance_note, check_target
from joulemesh.training.learners import configured
from joulemesh.training.prepare import the_dataset, the_model, with_outputs_noted
from joulemesh.world.redraw import worlds_of

Rates = bool | str | Sequence[float] | None

TUNING_SEEDS = 2
_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the scenario's own rate
_FURTHER = 500_000  # from the scenario's seed; other worlds' seeds are whole millions away

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
    configured(scenario, options.get("model"))
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


def compare_worlds(
    scenario: Scenario,
    worlds: int,
    methods: Sequence[str] | str,
    equal: str | None,
    seeds: int | Sequence[int],
    *,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> WorldsComparison:
    """Compare methods in several worlds, one after another, and combine what was found.

    Args:
        scenario: what is asked; its own world is the first.
        worlds: how many.
        methods: as in `joulemesh.compare`.
        equal: as in `joulemesh.compare`.
        seeds: how many repetition seeds each world has. A list of them is refused: worlds that
            shared seeds would not be independent.
        target: as in `joulemesh.compare`, but one for all worlds.
        on_progress: called after every chunk of iterations.
        options: the rest, as in `joulemesh.compare`.

    Raises:
        ScenarioError: what is asked is wrong, in whichever world that shows.
    """
    found = []
    for k, mine in enumerate(worlds_of(scenario, worlds, seeds)):

        def tell(step: Progress, k: int = k) -> None:
            if on_progress is not None:
                on_progress(replace(step, world=k, worlds=worlds))

        found.append(
            compare_methods(mine, methods, equal, seeds, target=target, on_progress=tell, **options)
        )
    return WorldsComparison.of(scenario, found, target)


def rates_of(scenario: Scenario, wanted: Rates) -> tuple[float, ...]:
    """The grid of learning rates, ascending; empty for no tuning.

    Args:
        scenario: whose own rate is in the middle of the grid, if none is given.
        wanted: whether to tune; or the rates themselves, as numbers or in one text with commas.

    Raises:
        ScenarioError: something that is not a rate, or the same rate twice.

    >>> rates_of(Scenario.preset("adaptive"), True)
    (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
    >>> rates_of(Scenario.preset("adaptive"), "0.1, 0.05")
    (0.05, 0.1)
    """
    if wanted is None or wanted is False:
        return ()
    if wanted is True:
        return tuple(scenario.training.learning_rate * times for times in _MULTIPLES)
    pieces = wanted.split(",") if isinstance(wanted, str) else wanted
    try:
        rates = sorted(float(piece) for piece in pieces)
    except (TypeError, ValueError):
        rates = []
    if not rates or not all(0 < rate < math.inf for rate in rates) or len(set(rates)) < len(rates):
        raise ScenarioError(
            f"the grid of learning rates is {wanted!r}: give different numbers above 0, "
            'for instance "0.05,0.1,0.2"'
        )
    return tuple(rates)


def tuning_seeds(scenario: Scenario, count: int, used: Sequence[int]) -> tuple[int, ...]:
    """Seeds for choosing a learning rate, the same for all methods.

    Args:
        scenario: they are half a million away from its seed.
        count: how many.
        used: the seeds of the result, none of which is among them.

    >>> tuning_seeds(Scenario.preset("adaptive"), 2, (0, 1, 500_000))
    (500001, 500002)
    """
    if count < 1:
        raise ScenarioError(f"tune_seeds = {count} is out of range: use 1 or more")
    first = scenario.seed + _FURTHER
    free = (seed for seed in range(first, first + count + len(used)) if seed not in set(used))
    return tuple(seed for _, seed in zip(range(count), free, strict=False))
